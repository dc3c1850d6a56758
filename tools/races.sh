#!/usr/bin/env bash
# Races between threads of a block in the CUDA kernels of gates, of q, k and v, and of experts, by the thread
# sanitizer on the emulated device (tests/emulate/races.h): `make races`. With 3 multiprocessors, so that a block takes
# many pieces after each other, and with 132, as real ones have. Not for attention: some of its threads compute the
# same number twice and write it twice.
set -u
build=$(realpath "${1:-build/release}")
sanitizer=$(realpath "$(${CXX:-c++} -print-file-name=libtsan.so)")
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for part in gate experts; do
  for multiprocessors in 3 132; do
    # its shadow memory needs a fixed layout of the process
    LD_PRELOAD=$sanitizer TSAN_OPTIONS="exitcode=0 report_thread_leaks=0" EK_EMULATED_MULTIPROCESSORS=$multiprocessors \
      timeout 200 setarch -R "$build/tests/cuda/device/device" emulated "$build/tests/races/libcuda.so.1" $part quick >"$log" 2>&1
    status=$?
    races=$(grep -c "WARNING: ThreadSanitizer" "$log")
    if [ $status -eq 0 ] && [ "$races" -eq 0 ] && grep -q "passed, 0 failed" "$log"; then
      passed=$((passed + 1))
      echo "ok   $part, $multiprocessors multiprocessors: no race, bits equal"
    else
      failed=$((failed + 1))
      echo "FAIL $part, $multiprocessors multiprocessors: $races races, exit $status"
      grep -A 8 "WARNING: ThreadSanitizer" "$log" | head -60
      tail -n 3 "$log"
    fi
  done
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
