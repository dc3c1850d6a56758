# Micro-benchmarks of single operators.
$B/bench/bench_%: $B/bench/bench_%.o $B/bench/probe_avx512.o $(call libs,ops)
	$(CC) $(LDFLAGS_ALL) -o $@ -Wl,--start-group $^ -Wl,--end-group $(LDLIBS)

bench-linear: $B/bench/bench_linear ## linear layers against memory bandwidth and multiply-add peak
	@$<
