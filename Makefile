# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := build

# Where Go installs itself, for shells of root that do not know it.
export PATH := $(PATH):/usr/local/go/bin:/usr/sbin:/sbin
export LC_ALL := C.UTF-8

ifeq ($(shell command -v go),)
$(error Go is missing: install the version that go.mod names from https://go.dev/dl)
endif

# Tests and demo load programs into the kernel and make network namespaces.
NEED_ROOT := $(filter test soak demo demo-incident-1 bench e2e e2e-replay e2e-doctor,$(MAKECMDGOALS))
ifneq ($(NEED_ROOT),)
ifneq ($(shell id -u),0)
$(error `make $(firstword $(NEED_ROOT))` runs as root: try `sudo make $(firstword $(NEED_ROOT))`)
endif
endif

# The version in the binary comes from git, where git will speak: it refuses
# root in another user's checkout.
VCS := $(shell git status >/dev/null 2>&1 && echo true || echo false)

DATAPATH := internal/datapath

# Packages with tests named MayDie, which let a process die at each of the
# package's failpoints. They are built with a tag.
FAILING := ./internal/datapath

# What `make generate` reads and writes, in $(DATAPATH).
GENERATED := bpf/*.c bpf/*.h generate.go *_bpfel.go *_bpfel.o

.PHONY: build
build: ## build bin/fairlead
	CGO_ENABLED=0 go build -buildvcs=$(VCS) -trimpath -o bin/fairlead ./cmd/fairlead

.PHONY: test
test: deps lint components ## run every test (root; the first run builds a Kubernetes API server)
	go test -p 2 -count 1 -timeout 15m -race ./internal/...
	go test -count 1 -tags failpoints ./internal/failpoint/...
	go test -p 2 -count 1 -timeout 15m -short -tags failpoints -run MayDie $(FAILING)
	go test -p 2 -count 1 -timeout 15m ./bench/... ./cmd/... ./docs/... ./examples/... ./test/...

# How long faults go on, or how many STEPS if DURATION is empty. A failure names
# the SEED and the step to which a run is repeated.
DURATION := 30m
STEPS :=
SEED :=

.PHONY: soak
soak: deps components ## break everything around an agent for DURATION, at random, then kill a writer at every step (root; see test/soak)
	FAULT_DURATION='$(DURATION)' FAULT_STEPS='$(STEPS)' FAULT_SEED='$(SEED)' FAULT_LONG=on \
		go test -count 1 -timeout 0 -v -run TestFaults ./test/soak
	go test -p 1 -count 1 -timeout 1h -tags failpoints -run MayDie $(FAILING)

.PHONY: lint
lint: ## check format, vet, and that the eBPF objects are those of the sources
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted (gofmt -w):" $$files >&2; exit 1; }
	go vet ./...
	go vet -tags failpoints ./...
	@for script in .ci/run hack/* test/*/*.sh; do bash -n $$script || exit 1; done
	@cd $(DATAPATH) && sha256sum $(GENERATED) | cmp -s - bpf/SHA256SUMS \
		|| { echo "eBPF sources and objects differ from the last generation: run \`make generate\`" >&2; exit 1; }

.PHONY: demo
demo: build ## show what Fairlead does, on this machine (root)
	bin/fairlead demo

# A folder in which a recording of the incident stays; none is made if empty.
KEEP :=

.PHONY: demo-incident-1
demo-incident-1: build components ## play the first incident on real API servers, on this machine (root)
	bin/fairlead demo incident-1 --keep '$(KEEP)'

.PHONY: bench
bench: deps ## run the benchmarks; the budgets stand beside them (root)
	hack/install-missing nft=nftables
	test/components/build.sh cluster
	go test -run '^$$' -bench . -benchmem -timeout 30m ./internal/... ./bench/...

.PHONY: generate
generate: ## compile the eBPF programs (clang; only after a change of the C sources)
	hack/install-missing clang=clang llvm-strip=llvm /usr/include/bpf/bpf_helpers.h=libbpf-dev
	cd $(DATAPATH) && BPF_INCLUDES="-idirafter /usr/include/$$(uname -m)-linux-gnu" go generate ./...
	cd $(DATAPATH) && sha256sum $(GENERATED) > bpf/SHA256SUMS

# Which proxy is on the nodes (fairlead or nftables), which sets of specs run,
# and, if not all of them, those whose names match a regular expression.
PROXY := fairlead
SETS := services,more
FOCUS :=

.PHONY: e2e
e2e: cluster ## run upstream's tests on a cluster of three nodes (root; see test/cluster)
	bin/cluster -proxy '$(PROXY)' -sets '$(SETS)' -focus '$(FOCUS)'

.PHONY: e2e-replay
e2e-replay: cluster ## replay the API server's incident on such a cluster (root)
	bin/cluster -replay

.PHONY: e2e-doctor
e2e-doctor: cluster ## run fairlead doctor on such a cluster, well and with faults (root)
	bin/cluster -doctor -proxy '$(PROXY)'

# The program runs in pods, too, which have no libraries for it.
.PHONY: cluster
cluster: build
	hack/install-missing gcc=gcc /usr/include/stdlib.h=libc6-dev containerd=containerd runc=runc \
		/usr/lib/cni/ptp=containernetworking-plugins iptables=iptables nft=nftables debootstrap=debootstrap
	test/components/build.sh cluster
	test/cluster/images.sh
	CGO_ENABLED=0 go build -o bin/cluster ./test/cluster

.PHONY: components
components: ## build etcd, kube-apiserver, kubectl, kube-proxy and helm for the tests, once
	test/components/build.sh

.PHONY: deps
deps: ## install what the tests need of the machine, if it is missing
	hack/install-missing gcc=gcc /usr/include/stdlib.h=libc6-dev /etc/ssl/certs/ca-certificates.crt=ca-certificates \
		curl=curl nc=netcat-openbsd iperf3=iperf3 chromium=chromium

.PHONY: clean
clean: ## remove what was built here (not the cache of test components)
	rm -rf bin

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18
