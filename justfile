# What the project can do, each with the tools that it needs, pinned. Go 1.26 is
# all that must be there, and npm for `conformance`. Without just on the machine:
# npx --yes rust-just@1.57.0 RECIPE

golangci_lint := "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0"
staticcheck := "honnef.co/go/tools/cmd/staticcheck@v0.8.2"
gofumpt := "mvdan.cc/gofumpt@v0.12.0"

# All that is Go here: ./... finds nothing below a name with a dot.
packages := "./... ./.ci/conformance"

# list the recipes
default:
    @just --list --unsorted

# build the command into dist/
build:
    go build -o dist/leasehold ./cmd/leasehold

# the tests, as the README has them
test:
    go test ./...

# the tests with the race detector
race:
    CGO_ENABLED=1 go test -race ./...

# kill the daemon under load a hundred times, and find all that it acknowledged: one or two minutes
kill-rounds rounds="100":
    go test ./cmd/leasehold -run TestKill -v -count=1 -timeout 30m -kill.rounds {{rounds}}

# all that can be said without running anything
lint: vet format-check golangci-lint staticcheck

golangci-lint:
    go run {{golangci_lint}} run {{packages}}

staticcheck:
    go run {{staticcheck}} {{packages}}

vet:
    go vet {{packages}}

# fails if `just fmt` would change a file
format-check:
    #!/usr/bin/env bash
    set -euo pipefail
    unformatted=$(gofmt -l . && go run {{gofumpt}} -l . .ci)
    [[ -z $unformatted ]] || { printf 'not formatted, run just fmt:\n%s\n' "$unformatted"; exit 1; }

# format everything, and write it the way current Go does
fmt:
    go fix {{packages}}
    go run {{gofumpt}} -w . .ci

# build and vet for macOS, on any machine
cross:
    GOOS=darwin GOARCH=amd64 go build ./... && GOOS=darwin GOARCH=amd64 go vet {{packages}}
    GOOS=darwin GOARCH=arm64 go build ./... && GOOS=darwin GOARCH=arm64 go vet {{packages}}

# the queue beside other durable queues, see bench/README.md: `just bench -quick` for a first look
[no-exit-message]
bench *flags:
    #!/usr/bin/env bash
    set -euo pipefail
    packages=()
    compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null || packages+=(postgresql)
    command -v redis-server >/dev/null || packages+=(redis-server)
    command -v beanstalkd >/dev/null || packages+=(beanstalkd)
    if ((${#packages[@]})) && command -v apt-get >/dev/null; then
        sudo=()
        ((EUID == 0)) || sudo=(sudo)
        # Who cannot be installed is left out, and the table says so.
        "${sudo[@]}" apt-get update -qq &&
            "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" ||
            echo "could not install ${packages[*]}" >&2
    fi
    cd bench
    go build -o ../dist/bench .
    exec ../dist/bench {{flags}}

# the benchmarks of the packages: of the engine and the rules against bare Pebble, of the socket against an empty tool
bench-packages:
    go test -run '^$' -bench . -benchtime 2s -timeout 30m ./...

# the scenarios of the official MCP conformance suite that apply
conformance: build
    npm ci --prefix .ci/conformance --no-audit --no-fund --loglevel error
    go run ./.ci/conformance -leasehold dist/leasehold -suite .ci/conformance

# the official MCP Inspector as a client, over stdio
inspector: build
    npm ci --prefix .ci/inspector --no-audit --no-fund --loglevel error
    .ci/inspector/run dist/leasehold

# write the pages of the book that are generated
docs:
    go test ./book -run TestGenerated -update

# fails if `just docs` would change a page
docs-check:
    go test ./book -run TestGenerated -count=1

# check the book: links, included code, generated pages
book:
    go test ./book

# fails if go.mod or go.sum are not tidy
tidy-check:
    go mod tidy -diff

tidy:
    go mod tidy

# what CI does
ci:
    .ci/run
