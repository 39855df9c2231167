# Everything that CI does can be done here; `make` lists it. Tools that do not come with Go are built into .tools/bin.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOLS := $(CURDIR)/.tools/bin
# The flags that tests are compiled with: what tools and tests have in common is compiled once.
TOOLENV := env -u GOOS -u GOARCH GOBIN=$(TOOLS) GOFLAGS="$$GOFLAGS -buildvcs=false"
GOLANGCI_LINT := $(TOOLS)/golangci-lint-2.15.0
ETCDCTL := $(TOOLS)/etcdctl-3.7.3
ETCDUTL := $(TOOLS)/etcdutl-3.7.3
ETCD_3_6 := $(TOOLS)/etcd-3.6.16
KUBE_APISERVER := $(TOOLS)/kube-apiserver-1.36.3
HELM := $(TOOLS)/helm-3.21.3
GOVULNCHECK := .tools/bin/govulncheck-1.8.0
ACTIONLINT := $(TOOLS)/actionlint-1.7.12
NFPM := $(TOOLS)/nfpm-2.43.0
CYCLONEDX := $(TOOLS)/cyclonedx-gomod-1.10.0
GO_LICENSES := $(TOOLS)/go-licenses-2.0.1
CLEAN_ROOT := .tools/clean-root-with-logins.tar
AXE := .tools/axe/node_modules/axe-core/axe.min.js
BOARDS := .tools/boards/installed
FUZZINPUTS ?= 50000
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null || echo unknown)
RELEASED := unlocker mutexdash mutexctl
PROGRAMS := $(RELEASED) mutexdev
# What is released is compiled of the newest patch versions, with that of Go: of the requirements in deploy/programs.
NEWEST := GOWORK=$(CURDIR)/deploy/programs/go.work GOTOOLCHAIN=auto CGO_ENABLED=0
LDFLAGS := -s -w -X github.com/clustermutex/unlocker/internal/daemon.version=$(VERSION)

.PHONY: help
help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: dev
dev: ## everything in one process on an embedded etcd, with demo locks
	go run ./cmd/mutexdev

.PHONY: build
build: ## all programs, static, into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ $(PROGRAMS:%=./cmd/%)

# Modules whose tests need nothing but Go. Which files a test of another module depends on, Go does not know: -count=1.
MODULES := bench pkg/mutexotel test/fencing test/guest test/recipes test/robustness

.PHONY: test
test: ## all tests that need nothing but Go, of this module and of the others
	go test ./...
	for module in $(MODULES); do go test -C $$module -count=1 ./...; done

.PHONY: race
race: etcdserver ## all tests with the race detector; their etcds are processes without it
	ETCDTEST_SERVER=$(CURDIR)/.tools/bin/etcdserver CGO_ENABLED=1 go test -race -tags etcdprocess ./...

.PHONY: cover
cover: ## all tests; then coverage by function
	go test -coverpkg=./... -coverprofile=cover.out ./...
	go tool cover -func=cover.out

.PHONY: browser
browser: chromium $(AXE) ## the pages in a real browser (installs Chromium and axe-core where they are missing)
	go test -C test/browser -tags browser -count=1 -timeout 20m -parallel 6 .

.PHONY: screenshots
screenshots: chromium $(AXE) ## the pictures in docs/images
	go test -C test/browser -tags browser -count=1 -run TestPictures . -pictures $(CURDIR)/docs/images

.PHONY: recording
recording: chromium $(AXE) ## the recording at the top of the README; it takes four minutes, because it shows three
	go test -C test/browser -tags browser,recording -count=1 -run TestRecording -v . -pictures $(CURDIR)/docs/images

.PHONY: chromium
chromium:
	@command -v chromium > /dev/null || .ci/need chromium chromium

.PHONY: alerts
alerts: prometheus ## from a lock to an alert: rules, Prometheus, Alertmanager (installs both where they are missing); ALERTS="-run FromTheLock"
	go test -C test/alerts -tags alerts -count=1 -parallel 6 $(ALERTS) .

.PHONY: alerts-picture
alerts-picture: prometheus chromium ## the picture of the alerts in docs/images
	go test -C test/alerts -tags alerts -count=1 -run TestFromTheLockToThePerson . -pictures $(CURDIR)/docs/images

.PHONY: boards
boards: prometheus chromium $(BOARDS) ## the pictures of Grafana's dashboards in docs/images, drawn by Grafana's panels from five minutes of the demo
	cp test/alerts/boards/board.cjs .tools/boards/ && cd .tools/boards && node_modules/.bin/esbuild board.cjs --bundle --log-level=error --outfile=dist/board.js \
		--define:process.env.NODE_ENV='"production"' --define:global=window --loader:.ttf=dataurl --loader:.svg=dataurl
	go test -C test/alerts -tags alerts,boards -count=1 -run TestPicturesOfTheDashboards . -pictures $(CURDIR)/docs/images -bundle $(CURDIR)/.tools/boards/dist/board.js

.PHONY: prometheus
prometheus:
	@command -v promtool > /dev/null || .ci/need promtool prometheus
	@command -v amtool > /dev/null || .ci/need amtool prometheus-alertmanager

.PHONY: bench
bench: ## the Go benchmarks
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-peers
bench-peers: peers ## our locks and their peers in turns (installs Redis and ZooKeeper where they are missing); ARGS="-work latency"
	cd bench && go run ./peers $(ARGS)

.PHONY: bench-scale
bench-scale: build ## what 10,000 and 100,000 locks cost; ARGS="-locks 10000"
	cd bench && go run ./scale -bin $(CURDIR)/bin $(ARGS)

.PHONY: bench-memory
bench-memory: build ## memory, start and idle processor time of unlocker and dashboard with 100,000 locks in both layouts
	cd bench && go run ./scale -bin $(CURDIR)/bin -layouts own,plain -locks 100000 -parts load,programs $(ARGS)

.PHONY: bench-mass
bench-mass: build ## 10,000 locks that expire at once beside 11,000 others, in both layouts, against etcd's leases
	cd bench && go run ./scale -bin $(CURDIR)/bin -layouts own,plain -locks 11000 -parts mass $(ARGS)

.PHONY: bench-deaths
bench-deaths: build $(KUBE_APISERVER) ## how long a killed holder's lock stays, and who loses one when cut off (installs Redis where it is missing); ARGS="-rounds 50"
	@.ci/need redis-server redis-server
	cd bench && go run ./deaths -bin $(CURDIR)/bin -kube-apiserver $(KUBE_APISERVER) $(ARGS)

.PHONY: bench-clients
bench-clients: ## an uncontended lock with the client of each language (needs Python, Ruby, Node); ARGS="-n 1000"
	cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund && npm run build
	cd bench && go run ./clients $(ARGS)

.PHONY: bench-test
bench-test: ## the tests of the benchmarks' own parts
	cd bench && go test ./...

.PHONY: otel
otel: ## the tests of the module for OpenTelemetry, with the race detector
	cd pkg/mutexotel && CGO_ENABLED=1 go test -race -count=1 ./...

.PHONY: peers
peers:
	@.ci/need redis-server redis-server
	@test -e /usr/share/java/zookeeper.jar || .ci/need /usr/share/zookeeper/bin/zkServer.sh zookeeper

CLIENTS := $(patsubst clients/%/client.mk,client-%,$(wildcard clients/*/client.mk))

.PHONY: clients
clients: ## every client in another language: lint, tests, package, README
	$(MAKE) --no-print-directory --jobs=4 --output-sync=target clients-install

# The etcd of their tests, linked once.
.PHONY: etcdserver
etcdserver:
	go build -o .tools/bin/etcdserver ./test/etcdserver

$(CLIENTS): etcdserver

.PHONY: clients-install
clients-install: $(CLIENTS) ## what the pages of the clients say under Install, word for word, with an empty home
	clients/install go $(CLIENTS:client-%=%)

include $(wildcard clients/*/client.mk test/conformance/*.mk)

.PHONY: fuzz-short
fuzz-short: ## every fuzz test with FUZZINPUTS (50000) inputs
	.ci/fuzz $(FUZZINPUTS)

.PHONY: chart
chart: $(ETCDCTL) ## the Helm chart: lint, unit tests; then what it says starts the real programs
	rm -rf dist/chart
	cd test/chart && go test -count=1 . -rendered $(CURDIR)/dist/chart
	go test -tags chart -count=1 ./test/deploy -rendered $(CURDIR)/dist/chart -etcdctl $(ETCDCTL)

.PHONY: kube
kube: $(KUBE_APISERVER) $(HELM) ## chart and witness on a real API server: releases with helm, and pods' ends as a kubelet reports them
	cd test/chart && go test -count=1 -run WrittenDown . -rendered $(CURDIR)/dist/chart
	go test -tags kube -count=1 ./test/kube -kube-apiserver $(KUBE_APISERVER) -helm $(HELM) -rendered $(CURDIR)/dist/chart

.PHONY: chart-files
chart-files: ## the rules and dashboards that the chart has copies of
	cp deploy/prometheus/unlocker.rules.yaml $(wildcard deploy/grafana/*.json) deploy/helm/unlocker/files/

SEEDS ?= 1,2,random
SOAK ?= 1h
KEEP ?= $(CURDIR)/.soak

.PHONY: robustness
robustness: ## everything at once, broken at random: SEEDS (1,2,random), 10 s of faults each; and the tests of the suite
	go test -C test/robustness -count=1 -v . -seeds $(SEEDS) -for 10s -keep $(KEEP)

.PHONY: faults
faults: $(ETCDUTL) $(ETCD_3_6) ## faults that need more than Go: restored backups, an upgrade of etcd, disks that hang (installs strace where it is missing)
	@command -v strace > /dev/null || .ci/need strace strace
	go test -C test/robustness -tags robustness -count=1 -v -parallel 4 -run 'TestARestore|TestEtcdIsUpgraded|TestTheDisk|TestTheOnlyDisk|TestAMemberThatDies' \
		. -etcdutl $(ETCDUTL) -etcd-3.6 $(ETCD_3_6)

.PHONY: mutants
mutants: ## leave out one guard after the other, of the code and of the protocol; each has to be found
	go test ./test/mutants -count=1 -v -timeout 0 -mutants all
	go test -C test/robustness -count=1 -v -timeout 0 -run TestMutants . -mutants all

.PHONY: soak
soak: ## the same for SOAK (1h), a new seed every minute; FAVOUR="client killed" makes faults more frequent; what it finds is kept in KEEP (.soak)
	mkdir -p $(KEEP)
	go test -C test/robustness -count=1 -timeout 0 -run TestSoak . -soak $(SOAK) -favour "$(FAVOUR)" -keep $(KEEP)

.PHONY: image-root
image-root: $(GO_LICENSES) ## what is in the image, into IMAGE_ROOT
	@test -n '$(IMAGE_ROOT)' || { echo 'say where: make image-root IMAGE_ROOT=DIR' >&2; exit 1; }
	mkdir -p $(IMAGE_ROOT)/usr/bin $(IMAGE_ROOT)/etc/ssl/certs $(IMAGE_ROOT)/licenses
	$(NEWEST) go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(IMAGE_ROOT)/usr/bin/ ./cmd/unlocker ./cmd/mutexdash ./cmd/mutexctl
	cp /etc/ssl/certs/ca-certificates.crt $(IMAGE_ROOT)/etc/ssl/certs/
	cp LICENSE $(IMAGE_ROOT)/licenses/
	deploy/notices $(GO_LICENSES) unlocker mutexdash mutexctl > $(IMAGE_ROOT)/licenses/NOTICES
	find $(IMAGE_ROOT) -type d -exec chmod 755 {} + && find $(IMAGE_ROOT) -type f -exec chmod go+r-w {} +

.PHONY: image
image: build $(GO_LICENSES) ## build the image's last stage twice without a registry, compare, start what is in it
	.ci/image $(GO_LICENSES) $(VERSION)

# The programs of a release, for GOOS and GOARCH, into INTO. What a build says of itself is its version alone, so that
# the same source makes the same bytes.
.PHONY: programs
programs:
	@test -n '$(INTO)' || { echo 'say where: make programs INTO=DIR' >&2; exit 1; }
	mkdir -p $(INTO)
	$(NEWEST) go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(INTO)/ $(RELEASED:%=./cmd/%)

.PHONY: patches
patches: ## the newest patch versions of all that a release is compiled of, into deploy/programs
	cd deploy/programs && go get $$(go list -deps -f '{{with .Module}}{{.Path}}@{{.Version}}{{end}}' tool | sort -u | \
		sed -nE '/-[0-9.]*20[0-9]{12}-/d; s/@(v[0-9]+\.[0-9]+)\.[0-9]+$$/@\1/p')
	cd deploy/programs && go mod tidy && go list -m all > /dev/null # for go.work.sum

.PHONY: windows
windows: ## mutexctl for Windows, into dist/windows; the daemons run on Linux
	for arch in $(ARCHITECTURES); do $(NEWEST) GOOS=windows GOARCH=$$arch go build -trimpath -buildvcs=false \
		-ldflags '$(LDFLAGS)' -o dist/windows/$$arch/ ./cmd/mutexctl; done

ARCHITECTURES ?= amd64 arm64

.PHONY: packages
packages: $(NFPM) $(GO_LICENSES) ## deb and rpm of unlocker, mutexdash and mutexctl, into dist/packages
	rm -rf dist/packages
	for arch in $(ARCHITECTURES); do deploy/packages/build $(NFPM) $(GO_LICENSES) $(VERSION) $$arch dist/packages; done
	ls -l dist/packages

PLATFORMS ?=

.PHONY: release
release: $(NFPM) $(CYCLONEDX) $(GO_LICENSES) ## all that a release has besides the image, into dist/release: VERSION=v1.2.3, PLATFORMS="linux/amd64 …" for less
	@command -v zip > /dev/null || .ci/need zip zip
	@command -v jq > /dev/null || .ci/need jq jq
	deploy/release $(NFPM) $(CYCLONEDX) $(GO_LICENSES) $(VERSION) dist/release $(PLATFORMS)

.PHONY: release-dry-run
release-dry-run: $(NFPM) $(CYCLONEDX) $(GO_LICENSES) ## build a release for this platform and for Windows, and look at what is in it; PLATFORMS for others
	@command -v zip > /dev/null || .ci/need zip zip
	@command -v rpm > /dev/null || .ci/need rpm rpm
	@command -v jq > /dev/null || .ci/need jq jq
	.ci/release $(NFPM) $(CYCLONEDX) $(GO_LICENSES) $(PLATFORMS)

.PHONY: packages-test
packages-test: $(NFPM) $(GO_LICENSES) $(CLEAN_ROOT) $(ETCDCTL) ## install the packages on a clean Debian that systemd runs, as docs/howto/systemd.md says; it needs root, and is no part of CI
	@command -v systemd-nspawn > /dev/null || .ci/need systemd-nspawn systemd-container
	@command -v rpm > /dev/null || .ci/need rpm rpm
	@command -v mandoc > /dev/null || .ci/need mandoc mandoc
	go test -tags packages -count=1 -exec $(CURDIR)/test/packages/cgroup2 ./test/packages -nfpm $(NFPM) -go-licenses $(GO_LICENSES) -root $(CURDIR)/$(CLEAN_ROOT) -etcdctl $(ETCDCTL)

.PHONY: units
units: ## the systemd units: verify them, and measure what they let through
	.ci/units

.PHONY: workflows
workflows: $(ACTIONLINT) ## check the workflows of GitHub
	@command -v shellcheck > /dev/null || .ci/need shellcheck shellcheck
	$(ACTIONLINT) .github/workflows/*.yml

.PHONY: fmt
fmt: ## format the Go code
	gofmt -l -w $$(git ls-files '*.go')

.PHONY: spec
spec: ## check the models of the protocol (Debian packages spin, gcc and tcc)
	spec/run.sh

.PHONY: spec-long
spec-long: ## the same within wider bounds, for a change of the protocol: half an hour
	@.ci/need spin spin
	@.ci/need tcc tcc
	spec/run.sh long

.PHONY: lint
lint: $(GOLANGCI_LINT) ## gofmt and golangci-lint, of every module that has Go files; the library builds for Windows
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt would change: $$unformatted"; exit 1; }
	for module in . test/chart test/alerts test/browser $(MODULES); do (cd "$$module" && $(GOLANGCI_LINT) run ./...); done
	GOOS=windows go build -trimpath ./pkg/... # as a release is built: compiled once for both

.PHONY: vulnerabilities
vulnerabilities: $(GOVULNCHECK) ## known vulnerabilities in what our programs call
	.ci/vulnerabilities $(GOVULNCHECK)


.PHONY: docs
docs: chart-files ## the generated parts of docs/ and of the chart
	go test ./cmd/internal/flagdocs ./cmd/internal/opsdocs ./internal/lockjson -count=1 -update

.PHONY: api
api: ## docs/api.txt, what the public Go packages declare: look at every line that goes
	go test ./internal/structure -count=1 -run GoAPI -update

.PHONY: examples
examples: build $(ETCDCTL) ## run the commands of docs/howto/etcdctl.md, and the play of docs/howto/recipes.md, against an etcd
	.ci/examples $(ETCDCTL)

.PHONY: ci
ci: ## what CI runs
	.ci/run

.PHONY: tools
tools: $(GOLANGCI_LINT) $(ETCDCTL) $(GOVULNCHECK) $(ACTIONLINT) $(AXE) $(NFPM) $(CYCLONEDX) $(GO_LICENSES) $(KUBE_APISERVER) $(HELM) ## build the tools, and what the test of the chart is made of
	cd test/chart && go test -count=1 -run '^$$' .

$(GOLANGCI_LINT):
	$(TOOLENV) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv $(TOOLS)/golangci-lint $@

$(GOVULNCHECK):
	$(TOOLENV) go install golang.org/x/vuln/cmd/govulncheck@v1.8.0
	mv $(TOOLS)/govulncheck $@

$(ACTIONLINT):
	$(TOOLENV) go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
	mv $(TOOLS)/actionlint $@

$(NFPM):
	$(TOOLENV) go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0
	mv $(TOOLS)/nfpm $@

$(CYCLONEDX):
	$(TOOLENV) go install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
	mv $(TOOLS)/cyclonedx-gomod $@

# In a module of its own, as etcd's programs are: `go install` asks GitHub whether the module is deprecated.
$(GO_LICENSES): $(TOOLS)/go-licenses-%:
	mkdir -p .tools/go-licenses
	cd .tools/go-licenses && printf 'module go-licenses\n\ngo 1.26.0\n' > go.mod && $(TOOLENV) go get github.com/google/go-licenses/v2@v$*
	cd .tools/go-licenses && $(TOOLENV) go build -o $@ github.com/google/go-licenses/v2

# Of the module that tests the chart, most of which is Helm.
$(HELM):
	cd test/chart && $(TOOLENV) go build -o $@ -ldflags '-s -w' helm.sh/helm/v3/cmd/helm

# The Debian, or its like, that this machine runs, as small as systemd, logins, curl and htpasswd allow.
$(CLEAN_ROOT):
	@command -v mmdebstrap > /dev/null || .ci/need mmdebstrap mmdebstrap
	mkdir -p $(@D)
	. /etc/os-release && mmdebstrap --format=tar --variant=essential --include=systemd,dbus,libpam-systemd,curl,apache2-utils "$$VERSION_CODENAME" $@.new
	mv $@.new $@

# The modules of etcd's programs replace others, so `go install` refuses them: a module of its own asks for each.
$(ETCDCTL) $(ETCDUTL): $(TOOLS)/%-3.7.3:
	mkdir -p .tools/$*
	cd .tools/$* && printf 'module $*\n\ngo 1.26.0\n' > go.mod && $(TOOLENV) go get go.etcd.io/etcd/$*/v3@v3.7.3
	cd .tools/$* && $(TOOLENV) go build -o $@ go.etcd.io/etcd/$*/v3

$(ETCD_3_6): $(TOOLS)/etcd-%:
	mkdir -p .tools/etcd
	cd .tools/etcd && printf 'module etcd\n\ngo 1.26.0\n' > go.mod && $(TOOLENV) go get go.etcd.io/etcd/server/v3@v$*
	cd .tools/etcd && $(TOOLENV) go build -o $@ go.etcd.io/etcd/server/v3

# Five minutes of processor time when nothing is cached; optimised, it would be ten. Without a version it calls itself
# v0.0.0, which clients refuse.
$(KUBE_APISERVER): $(TOOLS)/kube-apiserver-%:
	cd test/kube/apiserver && $(TOOLENV) go build -o $@ -gcflags=all='-N -l -dwarf=false' -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$* \
		-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" k8s.io/kubernetes/cmd/kube-apiserver

# The accessibility checks that the browser runs in every page; never part of a program.
$(AXE):
	@command -v npm > /dev/null || .ci/need npm npm
	npm install --silent --no-audit --no-fund --no-save --ignore-scripts --prefix .tools/axe axe-core@4.14.1
	touch $@

# Grafana's panels, for the pictures of the dashboards only.
$(BOARDS): test/alerts/boards/package.json
	@command -v npm > /dev/null || .ci/need npm npm
	mkdir -p .tools/boards && cp $< .tools/boards/
	cd .tools/boards && npm install --silent --no-audit --no-fund --ignore-scripts && touch installed

.PHONY: clean
clean: ## remove what was built, but not the tools
	rm -rf bin dist cover.out
