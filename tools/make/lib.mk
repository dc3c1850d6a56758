# The operator library: its bench (the archives and the installation follow below).
$B/bench/bench_lib: $B/bench/bench_lib.o $(PROBES) $(call libs,lib)
	$(CC) $(LDFLAGS_ALL) -o $@ -Wl,--start-group $^ -Wl,--end-group -lm -pthread
bench-lib: $B/bench/bench_lib ## the operator library against the engine's kernels and the machine
	@$<
