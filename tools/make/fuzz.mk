# libFuzzer with AddressSanitizer: every fuzz/fuzz_NAME.c is one program over all layers but the command line.
# Seeds lie in fuzz/corpus/NAME; what a run finds stays in the build folder.
FUZZ_SECONDS ?= 10
FUZZ_OPT  := -O1 -fsanitize=address,fuzzer-no-link -fno-omit-frame-pointer
FUZZ_BINS := $(patsubst fuzz/%.c,$B/fuzz/%,$(wildcard fuzz/fuzz_*.c))

fuzz: ## run every fuzzer for FUZZ_SECONDS (10)
	@$(MAKE) --no-print-directory CC=clang B=build/fuzz OPT='$(FUZZ_OPT)' fuzz-run

.PHONY: fuzz-run
fuzz-run: $(FUZZ_BINS)
	@set -e; for f in $^; do \
	  name=$${f##*/fuzz_}; found=$B/corpus/$$name; mkdir -p $$found; seeds=; \
	  if [ -d fuzz/corpus/$$name ]; then seeds=fuzz/corpus/$$name; fi; \
	  echo "fuzz $$name"; \
	  $$f -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0 \
	    -artifact_prefix=$B/$$name- $$found $$seeds; \
	done

$B/fuzz/%.o: WARN += -Wno-missing-prototypes
# Models by the writer of the tests.
$B/fuzz/fuzz_gguf $B/fuzz/fuzz_gguf_bind $B/fuzz/fuzz_gguf_tokenizer $B/fuzz/fuzz_mmproj: $(TEST_SUPPORT)
$B/fuzz/fuzz_mmproj: $(patsubst %,$B/tests/model/%.o,tower_case tower_gguf_case audio_scene)
$B/fuzz/fuzz_%: $B/fuzz/fuzz_%.o $(call libs,batch) $B/lib/ek_hub.a $B/lib/ek_decode.a $B/lib/ek_media.a | $B/fuzz/evenkeel-decode
	$(CC) $(LDFLAGS_ALL) -fsanitize=fuzzer -o $@ $(call group,$^) $(if $(filter $(TEST_SUPPORT),$^),$(TEST_LIBS)) $(LDLIBS)
# Most ask the program that decodes, as a server does; fuzz_image and fuzz_sound run its code in their own process.
$B/fuzz/evenkeel-decode: $B/evenkeel-decode
	@mkdir -p $(@D) && ln -sf ../evenkeel-decode $@
