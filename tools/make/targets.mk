# Targets that use what the Makefile builds.

# What a target builds for itself is built by all processors, unless the caller said how many.
PARALLEL = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1))

# Which tier runs what: CONTRIBUTING.md and tools/check/tiers.sh.
quick: ## tests of what changed since they last passed, include and format checks (at most 3 minutes)
	@tools/check/quick.py $B

check: setup ## set up, build with warnings as errors, run the tests (10 minutes on two cores)
	@$(MAKE) --no-print-directory $(PARALLEL) WERROR=-Werror check-programs
	@$(MAKE) --no-print-directory WERROR=-Werror TIER=check check-built

check-all: setup ## all tests and checks that there are (20 minutes on two cores)
	@$(MAKE) --no-print-directory $(PARALLEL) WERROR=-Werror check-all-programs
	@$(MAKE) --no-print-directory WERROR=-Werror TIER=all check-all-built

setup-checks: ## also install what optional checks need: a browser, proxies, ffmpeg, a subscriber, shells
	@tools/setup.sh chromium nginx-light haproxy ffmpeg python3-zmq python3-yaml zsh fish man-db

# As tools/check/tiers.sh has it.
CHECK_BINS := $(filter-out $B/tests/lib/%,$(TEST_BINS))
check-programs: $B/evenkeel $B/lib/ek_lib.a $(CHECK_BINS) # check_graph reads every object
check-all-programs: check-programs $(TEST_BINS) $(if $(findstring san,$(CONF)),,lib examples)

check-built: check-programs
	@TIER=$(TIER) tools/check/run.sh $B $(CHECK_BINS) && tools/check/quick.py $B --passed
check-all-built: check-all-programs
	@TIER=$(TIER) tools/check/run.sh $B $(TEST_BINS) && tools/check/quick.py $B --passed

check-clients: setup ## the official SDKs, frameworks and coding agents against the server (npm gets them)
	@$(MAKE) --no-print-directory $(PARALLEL) $B/evenkeel
	@CHECKS="tools/check/check_clients.sh tools/frameworks.sh tools/agents.sh tools/evaluations.sh" tools/check/run.sh $B

check-release: setup ## before a release: clients, frameworks and agents from npm, the container, tarball, packages and image, 64-bit Arm (an hour)
	@tools/setup.sh debootstrap lintian umoci clang lld llvm
	@$(MAKE) --no-print-directory $(PARALLEL) check-all-programs
	$(if $(DIST_HERE),@$(MAKE) --no-print-directory dist $(if $(NVCC),CUDA_ARCHS='$(CUDA_ARCHS)',CUDA=0))
	$(if $(DIST_HERE),@$(MAKE) --no-print-directory dist-aarch64)
	@CHECKS="tools/check/check_clients.sh tools/frameworks.sh tools/agents.sh tools/evaluations.sh tools/container.sh tools/check/check_dist.sh tools/check/check_dist_arm.sh tools/check/check_deb.sh tools/check/check_service.sh tools/check/check_image.sh tools/check/check_wheel.sh tools/check/check_macos.sh tools/check/check_vulkan.sh tools/check_arm.sh" TIER=release tools/check/run.sh $B \
	  $(filter %/test_emulated,$(TEST_BINS))

check-container: ## build deploy/Containerfile and run the image (podman; debootstrap makes the base image)
	@CHECKS=tools/container.sh tools/check/run.sh $B

check-arm: ## the operators' tests on 64-bit Arm, cross-compiled, under qemu
	@tools/check_arm.sh || [ $$? -eq 77 ]

demo: setup ## install, build, serve the bundled model, and show the promise on a tool-calling chat
	@$(MAKE) --no-print-directory $(PARALLEL) $B/evenkeel
	@tools/demo.sh $B/evenkeel

eval: setup ## one evaluation of the bundled model and its SHA-256, the same on every machine (EVAL="--isa avx2")
	@$(MAKE) --no-print-directory $(PARALLEL) $B/evenkeel
	@tools/eval.py $B/evenkeel $(EVAL)

pass-table: setup ## the bundled model's pass table over HTTP (PASS_TABLE="--n 50" thins it)
	@$(MAKE) --no-print-directory $(PARALLEL) $B/evenkeel
	@tools/pass_table.sh $B/evenkeel $(PASS_TABLE)

asan ubsan tsan: ## build and run the tests under a sanitizer
	@$(MAKE) --no-print-directory $(PARALLEL) CONF=$@ check-all-programs
	@$(MAKE) --no-print-directory CONF=$@ TIER=all check-all-built

load: $B/evenkeel ## a minute of 200 connections, every reply checked by its digest
	@python3 tests/e2e/load.py $B/evenkeel models/pocket 60

format: ## lay out every C and CUDA file as .clang-format says
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')

docs: $B/evenkeel ## write docs/OPTIONS.md from the options table
	$B/evenkeel help --markdown > docs/OPTIONS.md

clean: ## remove this configuration's build
	rm -rf $B
distclean: ## remove every build
	rm -rf build

.PHONY: format load check-arm check-container check-programs check-built check-all-programs check-all-built

include tools/make/same.mk
include tools/make/bench.mk
include tools/make/lib.mk
include tools/make/fuzz.mk
include tools/make/dist.mk
include tools/make/wheel.mk
