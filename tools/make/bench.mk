# Micro-benchmarks of single operators: bench/bench_X.c is one program over ops.
$B/bench/bench_%: $B/bench/bench_%.o $(call libs,ops)
	$(CC) $(LDFLAGS_ALL) -o $@ $(call group,$^) $(LDLIBS)

$B/bench/bench_grammar: $B/bench/bench_grammar.o $(call libs,chat)
	$(CC) $(LDFLAGS_ALL) -o $@ $(call group,$^) $(LDLIBS)

$B/bench/bench_steps: $B/bench/bench_steps.o $(call libs,engine)
	$(CC) $(LDFLAGS_ALL) -o $@ $(call group,$^) $(LDLIBS)

$B/bench/bench_audio: $B/bench/bench_audio.o $(call libs,model)
	$(CC) $(LDFLAGS_ALL) -o $@ $(call group,$^) $(LDLIBS)

$B/bench/bench_slices: $B/bench/bench_slices.o $(call libs,engine)
	$(CC) $(LDFLAGS_ALL) -o $@ $(call group,$^) $(LDLIBS)

bench-slices: $B/bench/bench_slices ## how long a stream waits while an image is encoded: SHAPE, N_LAYERS, TOWERS (a folder)
	@$< $(or $(SHAPE),e2b) $(or $(N_LAYERS),0) $(or $(THREADS),2) $(TOWERS)
bench-audio: $B/bench/bench_audio ## 30 s of sound through an audio tower of E2B's shapes, on THREADS
	@$< $(THREADS)
bench-grammar: $B/bench/bench_grammar ## masks of structured output, on TOKENIZER
	@$< $(or $(TOKENIZER),models/pocket/tokenizer.json)
bench-linear: $B/bench/bench_linear ## linear layers against memory bandwidth and multiply-add peak
	@$<
bench-attn: $B/bench/bench_attn ## attention against memory bandwidth and float32 multiply-add peak
	@$<
bench-rows: $B/bench/bench_rows ## row operators in each instruction set
	@$<
bench-kv: KV ?= f16,bf16,8,4
bench-kv: $B/bench/bench_kv $B/bench/bench_steps ## --kv formats side by side: attention, and steps of SHAPE, N_LAYERS, DEPTH
	@$B/bench/bench_kv $(KV)
	@$B/bench/bench_steps $(or $(SHAPE),e2b) $(or $(N_LAYERS),10) $(or $(DEPTH),8192) $(or $(THREADS),1) $(KV)
