#!/usr/bin/env bash
# The engine of libevenkeel from outside: programs that are built against the installed headers alone, by pkg-config, give
# the server's bits. Usage: check_library.sh BUILD_DIR
# tier: all
# runs: make
set -eu
cd "$(dirname "$0")/../.."
build=$1
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
model=models/pocket conf=release flags=-O2
case $build in *asan | *ubsan) echo "the thread sanitizer's build has the test: not run"; exit 77 ;; esac
case $build in *tsan) model=$build/tiny conf=tsan flags='-O1 -g -fsanitize=thread'; python3 tests/e2e/tiny_model.py "$model" ;; esac
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
make --no-print-directory B="$build" CONF="$conf" PREFIX="$dir/usr" install-lib >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; exit 1; }
export PKG_CONFIG_PATH=$dir/usr/lib/pkgconfig LD_LIBRARY_PATH=$dir/usr/lib TSAN_OPTIONS=halt_on_error=1
cc=${CC:-cc}
# shellcheck disable=SC2086 # flags are words
compile() { $cc -std=gnu99 -Wall -Wextra -Werror $flags "$1" $(pkg-config --cflags --libs evenkeel) -pthread -o "$2"; }
compile tests/capi/installed/many.c "$dir/many"
more=()
if [ $conf = release ]; then # the thread sanitizer takes the clone that starts a decoder for a fork
  compile tests/capi/installed/bodies.c "$dir/bodies"
  mkdir "$dir/examples"
  for e in examples/engine/*.c; do compile "$e" "$dir/examples/$(basename "$e" .c)"; done
  more=(--bodies "$dir/bodies" --examples "$dir/examples")
fi
[ "$(wc -l <examples/engine/chat.c)" -le 60 ] && [ "$(wc -l <tests/capi/installed/many.c)" -le 100 ] || { echo "a program is longer than promised"; exit 1; }
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/library.py "${SERVER:-$build/evenkeel}" "$model" "$dir/many" "${more[@]}"
