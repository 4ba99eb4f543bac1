# DynamICCL. `make` builds, `make demo` shows the loop without a GPU, `make test` is all that CI runs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := all

VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo unknown)
GOFLAGS_BUILD := -ldflags "-X main.version=$(VERSION)"
FUZZTIME ?= 1s
# All that is not built for the race detector is built alike, so that the go tool compiles each package once, and not for lint and fuzzing anew.
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)
ALIKE := CGO_ENABLED=0

.PHONY: all daemon plugin harness worker demo test unit pure computing race bench verify generated cuda lint fuzz generate clean help

all: daemon plugin harness worker ## build bin/ and lib/

# The tests of Go packages make in the same folders, under the same lock (internal/testbuild).
LOCKED = @+mkdir -p .cache; flock .cache/build.lock $(MAKE) $(if $(findstring jobserver,$(MAKEFLAGS)),,-j2) --no-print-directory

daemon: ## bin/dynamiccld, and bin/dynamiccld-train, which `dynamiccld train` becomes
	$(ALIKE) go build $(GOFLAGS_BUILD) -o bin/ ./cmd/dynamiccld ./cmd/dynamiccld-train

plugin: ## lib/libnccl-tuner-dynamiccl.so, its profiler name, and the preload library
	$(LOCKED) -C nccltuner/plugin
	$(LOCKED) -C nccltuner/preload

harness: ## bin/dynamiccl-rank, the stand-in for NCCL in a rank process
	$(LOCKED) -C nccltuner/harness

worker: ## bin/dynamiccl-worker, one rank of what sweep and calibrate measure
	$(LOCKED) -C nccltuner/worker

demo: all ## the closed loop in at most a minute: real plugin, 12 rank processes, recorded H200 measurements
	bin/dynamiccld demo

# The demo waits most of its time, and linters and one package of the core, which takes longest, have but a core: three at a time.
# Nobody compiles Go while its files are generated.
test: all generated ## everything that CI runs
	@$(MAKE) --no-print-directory -j3 -O demo pure cuda computing lint
	@$(MAKE) --no-print-directory race fuzz

.PHONY: fakegpu
fakegpu: ## stand-ins for libcuda and libnccl in .cache/fakegpu, for tests
	$(LOCKED) -C nccltuner/fakegpu

# The core and its simulator have no goroutines (TestCoreIsPure), nor has what reads the pages: nothing can race there, and their tests take a
# tenth of the time.
PURE := ./actions ./state ./agents ./tuner ./tuner/tunersim ./docs
# So do these, which compute for long, and of which TestThreads in models/train has all that goroutines share.
COMPUTING := ^(TestResumedRunHasTheSameBytes|TestActorImproves|TestActorGoesOnFromImitation|TestHeldOutFigures|TestMovesToFewer(Contexts|CTAs)AndBack|TestWhatTheCorePublishesHasRoom)$$
# In the background of a script these signals are ignored, and by all that is started there: tests send them.
GOTESTSUM := env --default-signal=INT,QUIT $$($(ALIKE) go tool -n gotestsum) --format pkgname-and-test-fails --format-hide-empty-pkg
# Without vet, which lint has asked, and without what debuggers want. Where other things keep the machine busy (a load of 30 on two CPUs) ten minutes are not enough.
GOTEST := -vet=off -count=1 -timeout 25m '-ldflags=-s -w'
unit: pure computing race ## Go and C tests, all but the core's with the race detector, and their number

pure:
	$(ALIKE) $(GOTESTSUM) -- $(GOTEST) $(PURE)

computing: all
	$(ALIKE) $(GOTESTSUM) -- $(GOTEST) -run '$(COMPUTING)' ./models/... ./cmd/dynamiccld-train ./nccltuner

# A process would wait a second at its end for races of goroutines that it has left behind.
# Four packages at once on two cores: live tests wait for much of their time. The longest come first, so that none is alone at the end.
LONGEST := ./kernels/carriertest ./nccltuner/fakegputest ./nccltuner/plugintest ./kernels/kernelstest \
	$(addprefix ./cmd/dynamiccld/internal/,sweep live paired calibrate) ./nccltuner/gputest/programtest ./nccltuner/workertest
race: all fakegpu
	GORACE=atexit_sleep_ms=100 $(GOTESTSUM) -- -race -p 4 $(GOTEST) -skip '$(COMPUTING)' $(LONGEST) $$(go list ./... | grep -vxF "$$(go list $(PURE))")

bench: all ## every figure, as JSON lines in docs/figures/ (minutes; an idle machine)
	.ci/bench

verify: lint generated ## formatting, lint, generated code up to date

generated: generate
	@git diff --exit-code -- nccltuner/abi_gen.go || { echo "nccltuner/abi_gen.go is stale: commit what 'make generate' wrote"; exit 1; }

.PHONY: carrier
carrier: ## lib/libnccl-net-dynamiccl-carrier.so and the kernel of its card: NCCL's GIN between processes of one host without a NIC; for development alone
	$(LOCKED) -C kernels/carrier all fatbin

.PHONY: kernels
kernels: plugin ## lib/dynamiccl-kernels.fatbin, -gin.fatbin and -gin-2.32.3.fatbin, the kernels of paths lsa and gin, with the pinned nvcc; without them NCCL runs all calls
	$(LOCKED) -C kernels fatbin gin-fatbin
	cp .cache/kernels/kernels.fatbin lib/dynamiccl-kernels.fatbin
	cp .cache/kernels/gin.fatbin lib/dynamiccl-gin.fatbin
	if [ -e .cache/kernels/gin-2.32.3.fatbin ]; then cp .cache/kernels/gin-2.32.3.fatbin lib/dynamiccl-gin-2.32.3.fatbin; fi

cuda: ## every CUDA file compiles, with the pinned nvcc of .cache/cuda; needs no GPU
	.ci/cuda
	$(LOCKED) -C kernels compiles

lint:
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt -w these files:"; echo "$$out"; exit 1; }
	$(ALIKE) go vet ./...
	$(ALIKE) go tool staticcheck ./...

generate:
	$(ALIKE) go generate ./nccltuner

fuzz: ## every fuzz target for FUZZTIME
	$(ALIKE) .ci/fuzz $(FUZZTIME)

clean:
	rm -rf bin lib .cache/test
	$(MAKE) --no-print-directory -C nccltuner/plugin clean
	$(MAKE) --no-print-directory -C nccltuner/preload clean
	$(MAKE) --no-print-directory -C nccltuner/harness clean
	$(MAKE) --no-print-directory -C nccltuner/worker clean
	$(MAKE) --no-print-directory -C nccltuner/fakegpu clean
	$(MAKE) --no-print-directory -C kernels/carrier clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: gpu-bundle
gpu-bundle: ## all that the GPU scripts run, built here for a machine with GPUs, but neither Go nor a network; ARCH=sm_90; NCCL_TESTS=DIR: nccl-tests too
	nccltuner/gputest/bundle.sh $(ARCH)

.PHONY: aarch64-test
aarch64-test: ## daemon, plugin and preload library for aarch64, under qemu: what needs no kernels
	nccltuner/aarch64.sh

# What is to test our kernels has them built, and with GIN=1 what they put over, unless it is to do without.
GPU_KERNELS := $(if $(filter 1,$(DYNAMICCL_NO_KERNELS)),,kernels $(if $(filter 1,$(GIN)),carrier))

# Building takes minutes, and is not begun in vain.
GPUS_THERE = @. kernels/bench/usage.sh; gpus_there

.PHONY: gpu-test
gpu-test: ## real NCCL on the GPUs of this machine; results in docs/figures/
	$(GPUS_THERE)
	@$(MAKE) --no-print-directory all $(GPU_KERNELS)
	nccltuner/gputest/run.sh
	nccltuner/gputest/cases.sh

.PHONY: gpu-kernels
gpu-kernels: ## the kernels of kernels/ checked and timed on the GPUs of this machine, beside NCCL and PyTorch
	kernels/bench/run.sh

.PHONY: gpu-gin
gpu-gin: ## the kernels on NCCL's GIN probed, checked and timed on the GPUs of this machine; DYNAMICCL_CARRIER=1: without NICs
	kernels/bench/gin.sh

.PHONY: gpu-sanitize
gpu-sanitize: ## the kernels of kernels/ under compute-sanitizer, on two GPUs of this machine, or one
	kernels/bench/sanitize.sh

.PHONY: gpu-sanitize-gin
gpu-sanitize-gin: ## the kernels on NCCL's GIN under compute-sanitizer, on two GPUs of this machine, over the carrier
	kernels/bench/sanitize_gin.sh

.PHONY: gpu-stress
gpu-stress: ## ten minutes of a random mix on the GPUs of this machine, the daemon killed every 10 s
	$(GPUS_THERE)
	@$(MAKE) --no-print-directory all $(GPU_KERNELS)
	nccltuner/gputest/stress.sh 600

.PHONY: gpu-sweep
gpu-sweep: ## tables of real NCCL on the GPUs of this machine, and the noise of single calls, into .cache/sweep (minutes)
	$(GPUS_THERE)
	@$(MAKE) --no-print-directory all
	mkdir -p .cache/sweep
	cd .cache/sweep && export NCCL_NVLS_ENABLE=0 && sweep=$(CURDIR)/bin/dynamiccld && nodes=$$(nvidia-smi -L | wc -l) && \
	$$sweep sweep && $$sweep sweep --nodes $$nodes --rounds 3 --budget 60ms && for calls in graph stream; do \
	$$sweep sweep --single-calls 1000 --calls $$calls --collectives AllReduce,AllGather,ReduceScatter --sizes 1K,64K,1M,4M,16M,64M \
	--choices ring/ll/8,ring/ll128/16 --out noise-$$calls.csv || exit 1; done

.PHONY: gpu-bench
gpu-bench: ## the kernels as gpu-kernels has them, and unmodified programs with and without DynamICCL, on the GPUs of this machine (an hour and a half); NCCL_TESTS=DIR or NCCL_TESTS_BUILT=DIR: nccl-tests too
	$(GPUS_THERE)
	@$(MAKE) --no-print-directory all
	failed=0; kernels/bench/run.sh || failed=1; nccltuner/gputest/live.sh || failed=1; for p in fallbacks torch fused decode kill ddp overlap $$([ -z "$${NCCL_TESTS:-}$${NCCL_TESTS_BUILT:-}" ] || echo nccltests); do nccltuner/gputest/program_$$p.sh docs/figures/programs-$$(date -u +%F).jsonl || failed=1; done; exit $$failed

.PHONY: gpu-bench-all
gpu-bench-all: ## what gpu-bench leaves out: links, samples against events, other steps and programs, GIN over the carrier (an hour and a half); ONLY="samples links": some of them
	$(GPUS_THERE)
	@$(MAKE) --no-print-directory all carrier kernels
	nccltuner/gputest/all.sh
