module github.com/leasehold/leasehold/.ci/lint

go 1.26.0

require (
	4d63.com/gocheckcompilerdirectives v1.4.0
	codeberg.org/polyfloyd/go-errorlint v1.9.0
	github.com/alingse/nilnesserr v0.2.0
	github.com/ashanbrown/makezero/v2 v2.2.1
	github.com/breml/bidichk v0.3.4
	github.com/charithe/durationcheck v0.0.11
	github.com/curioswitch/go-reassign v0.3.0
	github.com/golangci/misspell v0.8.0
	github.com/golangci/unconvert v0.0.0-20250410112200-a129a6e6413e
	github.com/gordonklaus/ineffassign v0.2.0
	github.com/karamaru-alpha/copyloopvar v1.2.2
	github.com/kisielk/errcheck v1.30.0
	github.com/ldez/usetesting v0.5.0
	github.com/timakin/bodyclose v0.0.0-20260723120731-857993a2939c
	github.com/ykadowak/zerologlint v0.1.5
	golang.org/x/tools v0.52.0
	honnef.co/go/tools v0.8.2
)

require (
	github.com/BurntSushi/toml v1.4.1-0.20240526193622-a339e1f7089c // indirect
	github.com/gostaticanalysis/analysisutil v0.7.1 // indirect
	github.com/gostaticanalysis/comment v1.4.2 // indirect
	golang.org/x/exp/typeparams v0.0.0-20231108232855-2478ac86f678 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.22.0 // indirect
	golang.org/x/tools/go/packages/packagestest v0.1.1-deprecated // indirect
)
