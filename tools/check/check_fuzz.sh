#!/usr/bin/env bash
# Every fuzzer compiles without a warning; `make fuzz` also links and runs them. Usage: check_fuzz.sh BUILD_DIR
# tier: all
# runs: make
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
sources=(fuzz/fuzz_*.c)
objects=("${sources[@]/#/$build/}")
make --no-print-directory -s -j2 B="$build" WERROR=-Werror "${objects[@]/%.c/.o}"
echo "${#sources[@]} passed, 0 failed"
