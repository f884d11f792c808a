# The everyday commands. `make setup` once, then `make test`.
#
#   make build      bin/lacuna
#   make run        start a broker on 127.0.0.1:9092, data in ./lacuna-data
#   make test       all tests, with the race detector
#   make long       the same tests with thousands of seeds, without the detector
#   make exactly-once  exactly once, out of order, with processes killed: two minutes;
#                   with LACUNA_LONG=1 more of it, and 100,000 inputs at a time
#   make lint       formatting, vet, golangci-lint; `make modules` for tidy module files
#   make fuzz       each fuzz target for FUZZTIME
#   make bench      the benchmarks; BENCH=pattern, COUNT=6 for benchstat
#   make compat     other people's clients and suites; `make compat-all` for all of them
#   make peers      the load generator and the peers of bench/peers, and a short run of wordcount
#   make clean

SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# Tools and clients that the project installs for itself live here.
LACUNA_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/lacuna
export LACUNA_CACHE

GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(LACUNA_CACHE)/bin/golangci-lint-$(GOLANGCI_VERSION)
MODULES := . bench/peers tests/compat/suites

# The admin listener speaks HTTP/1 only, so the binary goes without HTTP/2.
BUILDTAGS := nethttpomithttp2

# What runs when the program starts, for the admin listener, for people or after an error
# is compiled without inlining, which makes the binary half a megabyte smaller.
COLD := crypto/x509 encoding/asn1 internal/profile mime/... net/http/... regexp/... runtime/pprof text/... \
	github.com/cockroachdb/errors/... github.com/cockroachdb/redact/... github.com/fsnotify/... \
	github.com/getsentry/... github.com/go-viper/... github.com/gogo/... github.com/knadh/... \
	github.com/kr/... github.com/prometheus/... github.com/schollz/... github.com/spf13/... \
	github.com/twmb/franz-go/pkg/kadm go.yaml.in/... golang.org/x/text/... google.golang.org/protobuf/...
# Functions begin at 16 bytes as on arm64, not at 32: .2 MB, and no slower.
LDFLAGS := -s -w -funcalign=16

TESTFLAGS ?=
FUZZTIME ?= 10s
BENCH ?= .
COUNT ?= 1

# Set on a commit that carries a release's tag; other builds name their commit.
RELEASE := $(shell git describe --tags --exact-match 2> /dev/null)

.PHONY: setup build run test long exactly-once lint modules fmt fuzz bench bench-once compat compat-all compat-setup peers clean

setup: $(GOLANGCI)
	for m in $(MODULES); do (cd $$m && go mod download); done

$(GOLANGCI):
	mkdir -p $(@D)
	GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(@D)/golangci-lint $@

build:
	CGO_ENABLED=0 go build -trimpath -tags $(BUILDTAGS) $(foreach p,$(COLD),-gcflags=$(p)=-l) \
	  -ldflags '$(LDFLAGS) -X main.release=$(RELEASE)' -o bin/lacuna ./cmd/lacuna

run: build
	bin/lacuna serve

test:
	go test -race $(TESTFLAGS) ./...

long:
	LACUNA_LONG=1 go test -timeout 20m $(TESTFLAGS) ./...

exactly-once:
	LACUNA_EXACTLY_ONCE=1 go test -race -timeout $(if $(LACUNA_LONG),120m,20m) $(TESTFLAGS) -run TestExactlyOnceOutOfOrder ./tests

lint: $(GOLANGCI)
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt: $$unformatted"; exit 1; fi
	for m in . bench/peers; do (cd $$m && go vet ./...); done
	$(GOLANGCI) run --allow-parallel-runners ./...

modules:
	for m in $(MODULES); do (cd $$m && go mod tidy -diff); done

fmt:
	gofmt -w $$(git ls-files -co --exclude-standard '*.go')

fuzz:
	tests/fuzz.sh $(FUZZTIME)

bench:
	go test -run '^$$' -bench '$(BENCH)' -count $(COUNT) ./...

bench-once:
	go test -run '^$$' -bench . -benchtime 1x ./...

compat-setup:
	tests/compat/setup.sh

compat: compat-setup
	LACUNA_COMPAT=1 go test -count 1 -timeout 30m $(TESTFLAGS) ./tests/compat

compat-all: compat-setup
	LACUNA_COMPAT=all go test -count 1 -timeout 60m -v ./tests/compat

peers:
	cd bench/peers && go build -o bin/ ./... && ./wordcount.sh /dev/null lacuna,lacuna-log-eo -n 50000 -turns 1

clean:
	rm -rf bin bench/peers/bin lacuna-data
