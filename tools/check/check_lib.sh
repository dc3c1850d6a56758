#!/usr/bin/env bash
# libevenkeel from outside: it exports what its headers declare and nothing else, the examples hold,
# and a program of its own builds against an installed copy, in C99 and in C++, shared and static.
# Usage: check_lib.sh BUILD_DIR
set -u
cd "$(dirname "$0")/../.."
build=${1:-build/release}
case $build in *san) echo "a sanitizer's build is not installed"; exit 77 ;; esac
bad=0
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
make --no-print-directory B="$build" lib examples >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; exit 1; }

declared=$(sed -n 's/^EK_API .*\b\(ek_[a-z0-9_]*\)(.*/\1/p' include/*.h | sort)
exported=$(nm -D --defined-only "$build/libevenkeel.so" | awk '$2 == "T" {sub("@.*", "", $3); print $3}' | sort)
static=$(nm -g --defined-only "$build/libevenkeel.a" | awk 'NF == 3 {print $3}' | sort)
[ "$declared" = "$exported" ] || { echo "the headers declare and libevenkeel.so exports:"; diff <(echo "$declared") <(echo "$exported"); bad=1; }
[ "$declared" = "$static" ] || { echo "the headers declare and libevenkeel.a exports:"; diff <(echo "$declared") <(echo "$static"); bad=1; }
nm -D --defined-only "$build/libevenkeel.so" | awk '$2 == "T" && $3 !~ /@@EVENKEEL_1$/ {print $3 " has no version"; bad = 1} END {exit bad}' || bad=1

for example in "$build"/examples/*; do
  [ -x "$example" ] && [ -f "$example" ] || continue
  "$example" >"$dir/out" || { echo "$example failed"; cat "$dir/out"; bad=1; }
  grep -q 'the same bits everywhere' "$dir/out" || { echo "$example does not say that bits are the same"; bad=1; }
done

make --no-print-directory B="$build" install-lib PREFIX="$dir/usr" >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; exit 1; }
export PKG_CONFIG_PATH=$dir/usr/lib/pkgconfig
cc=${CC:-cc}
$cc -std=c99 -pedantic -Wall -Wextra -Werror docs/ops/hello/main.c $(pkg-config --cflags --libs evenkeel) -o "$dir/hello" &&
  LD_LIBRARY_PATH=$dir/usr/lib "$dir/hello" | grep -q 'the same bits' || { echo "the worked example fails with the shared library"; bad=1; }
$cc docs/ops/hello/main.c $(pkg-config --cflags evenkeel) "$dir/usr/lib/libevenkeel.a" -lm -pthread -o "$dir/hello" &&
  "$dir/hello" | grep -q 'the same bits' || { echo "the worked example fails with the static library"; bad=1; }
if command -v c++ >/dev/null; then
  printf '#include <evenkeel_ops.h>\nint main() { ek_view v = ek_view_1d(nullptr, EK_TYPE_F32, 0); return ek_copy(v, v); }\n' >"$dir/a.cpp"
  c++ -Wall -Wextra -Werror "$dir/a.cpp" $(pkg-config --cflags --libs evenkeel) -o "$dir/a" && LD_LIBRARY_PATH=$dir/usr/lib "$dir/a" ||
    { echo "the headers do not serve C++"; bad=1; }
elif [ $bad -eq 0 ]; then
  echo "skipped the headers in C++: no compiler"
  echo "1 passed, 0 failed, 1 skipped"
fi
exit $bad
