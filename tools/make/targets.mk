# Targets that use what the Makefile builds.

# What a target builds for itself is built by all processors, unless the caller said how many.
PARALLEL = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))

check: setup ## set up, build with warnings as errors, and run every test
	@$(MAKE) --no-print-directory $(PARALLEL) WERROR=-Werror check-programs
	@$(MAKE) --no-print-directory WERROR=-Werror check-built

setup-checks: ## also install what optional checks need: a browser, proxies
	@tools/setup.sh chromium nginx-light haproxy

check-programs: $B/evenkeel $(TEST_BINS)

check-built: check-programs
	@tools/check/run.sh $B $(TEST_BINS)

check-clients: setup ## the official SDKs, frameworks and coding agents against the server (npm gets them)
	@$(MAKE) --no-print-directory $(PARALLEL) $B/evenkeel
	@CHECKS="tools/check/check_clients.sh tools/frameworks.sh tools/agents.sh" tools/check/run.sh $B

check-container: ## build deploy/Containerfile and run the image (podman; debootstrap makes the base image)
	@CHECKS=tools/container.sh tools/check/run.sh $B

quick: check-programs ## tests without set-up
	@tools/check/run.sh $B $(TEST_BINS)

check-arm: ## the operators' tests on 64-bit Arm, cross-compiled, under qemu
	@tools/check_arm.sh || [ $$? -eq 77 ]

demo: setup ## install, build, serve the bundled model, and show the promise on a tool-calling chat
	@$(MAKE) --no-print-directory $(PARALLEL) $B/evenkeel
	@tools/demo.sh $B/evenkeel

eval: setup ## the bundled model's pass table with our own engine (EVAL="--n 50" thins it)
	@$(MAKE) --no-print-directory $(PARALLEL) $B/evenkeel
	@tools/eval.sh $B/evenkeel $(EVAL)

asan ubsan tsan: ## build and run the tests under a sanitizer
	@$(MAKE) --no-print-directory $(PARALLEL) CONF=$@ check-programs
	@$(MAKE) --no-print-directory CONF=$@ check-built

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

.PHONY: format load check-arm check-container check-programs check-built

include tools/make/same.mk
include tools/make/bench.mk
include tools/make/lib.mk
include tools/make/fuzz.mk
