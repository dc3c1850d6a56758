#!/usr/bin/env bash
# libevenkeel from outside: it exports what its headers declare and nothing else, the examples hold, the
# commands and the code of docs/OPS.md work as they stand there, and the worked example builds against the
# installed copy in C99, shared and static, and the headers serve C++.
# Usage: check_lib.sh BUILD_DIR
# tier: all
# runs: make
set -u
cd "$(dirname "$0")/../.."
build=${1:-build/release}
case $build in *san) echo "a sanitizer's build is not installed"; exit 77 ;; esac
bad=0
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
make --no-print-directory B="$build" lib examples >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; exit 1; }

declared=$(sed -n 's/^EK_API .*\b\(ek_[a-z0-9_]*\)(.*/\1/p' include/*.h | sort) # the operators
engine=$(sed -n 's/^EK_API .*\b\(evenkeel_[a-z0-9_]*\)(.*/\1/p' include/*.h | sort)
exported=$(nm -D --defined-only "$build/libevenkeel.so" | awk '$2 == "T" {sub("@.*", "", $3); print $3}' | sort)
static=$(nm -g --defined-only "$build/libevenkeel.a" | awk 'NF == 3 {print $3}' | sort)
both=$(printf '%s\n' "$declared" "$engine" | sort)
[ -n "$engine" ] && [ "$both" = "$exported" ] || { echo "the headers declare and libevenkeel.so exports:"; diff <(echo "$both") <(echo "$exported"); bad=1; }
[ "$declared" = "$static" ] || { echo "the headers declare and libevenkeel.a exports:"; diff <(echo "$declared") <(echo "$static"); bad=1; }
nm -D --defined-only "$build/libevenkeel.so" | awk '$2 == "T" && $3 !~ /@@EVENKEEL_1$/ {print $3 " has no version"; bad = 1} END {exit bad}' || bad=1

for example in "$build"/examples/*; do
  [ -x "$example" ] && [ -f "$example" ] || continue
  "$example" >"$dir/out" || { echo "$example failed"; cat "$dir/out"; bad=1; }
  grep -q 'the same bits everywhere' "$dir/out" || { echo "$example does not say that bits are the same"; bad=1; }
done

# The code blocks of a language in docs/OPS.md.
blocks() { awk -v lang="$1" '$0 == "```" {on = 0} on; $0 == "```" lang {on = 1}' docs/OPS.md; }

# The commands as the page has them, in a folder with the worked example as main.c; only the prefix and the
# build folder are ours.
mkdir "$dir/user" && cp docs/ops/hello/main.c "$dir/user/main.c"
{ printf 'make() { command make --no-print-directory -C "%s" B="%s" "$@"; }\n' "$PWD" "$build"
  blocks sh | sed "s|/usr/local|$dir/usr|"; } >"$dir/commands"
grep -q 'install-lib' "$dir/commands" && grep -q 'pkg-config' "$dir/commands" || { echo "docs/OPS.md has lost its commands"; bad=1; }
export PKG_CONFIG_PATH=$dir/usr/lib/pkgconfig LD_LIBRARY_PATH=$dir/usr/lib
( cd "$dir/user" && bash -e "$dir/commands" ) >"$dir/log" 2>&1 ||
  { echo "the commands of docs/OPS.md fail:"; cat "$dir/commands"; tail -n 20 "$dir/log"; exit 1; }
"$dir/user/main" | grep -q 'the same bits' || { echo "the worked example fails with the shared library"; bad=1; }

cc=${CC:-cc}
$cc -std=c99 -pedantic -Wall -Wextra -Werror docs/ops/hello/main.c $(pkg-config --cflags evenkeel) "$dir/usr/lib/libevenkeel.a" -lm -pthread -o "$dir/hello" &&
  "$dir/hello" | grep -q 'the same bits' || { echo "the worked example fails with the static library"; bad=1; }

# The call that the page shows, around declarations of what it uses.
{ printf '#include <evenkeel_ops.h>\n#include <stdio.h>\n'
  printf 'void call(void *codes, void *scales, void *biases, void *x, void *y, int64_t rows, int64_t outputs, int64_t inputs);\n'
  printf 'void call(void *codes, void *scales, void *biases, void *x, void *y, int64_t rows, int64_t outputs, int64_t inputs) {\n'
  blocks c
  printf '}\n'; } >"$dir/call.c"
grep -q 'ek_quantized_matmul' "$dir/call.c" || { echo "docs/OPS.md has lost its code"; bad=1; }
$cc -std=c99 -Wall -Wextra -Werror -Wno-missing-field-initializers $(pkg-config --cflags evenkeel) -c "$dir/call.c" -o "$dir/call.o" ||
  { echo "the code of docs/OPS.md does not compile"; bad=1; }

# Every make target and function that the pages name exists, and every function has a page.
for target in $(grep -ohE '`make [a-z-]+' docs/OPS.md docs/ops/*.md | awk '{print $2}' | sort -u); do
  command make --no-print-directory -n B="$build" "$target" >/dev/null 2>&1 || { echo "docs name make $target, which there is not"; bad=1; }
done
for name in $(grep -ohE '`ek_[a-z0-9_]+' docs/OPS.md docs/ops/*.md | tr -d '`' | sort -u); do
  case $name in *_) continue ;; esac # ek_view_*
  grep -qE "\\b$name\\b" include/*.h || { echo "docs name $name, which the headers do not have"; bad=1; }
done
for name in $engine; do
  grep -qE "\b$name\b" docs/LIBRARY.md || { echo "docs/LIBRARY.md does not name $name"; bad=1; }
done
for name in $(grep -ohE '`evenkeel_[a-z0-9_]+' docs/LIBRARY.md | tr -d '`' | sort -u); do
  grep -qE "\b$name\b" include/*.h || { echo "docs/LIBRARY.md names $name, which the headers do not have"; bad=1; }
done
for name in $declared; do
  grep -qE "\\b$name\\b|\\b${name%_*}_\\*" docs/OPS.md docs/ops/*.md || { echo "no page of docs names $name"; bad=1; }
done

if command -v c++ >/dev/null; then
  printf '#include <evenkeel_ops.h>\nint main() { ek_view v = ek_view_1d(nullptr, EK_TYPE_F32, 0); return ek_copy(v, v); }\n' >"$dir/a.cpp"
  c++ -Wall -Wextra -Werror "$dir/a.cpp" $(pkg-config --cflags --libs evenkeel) -o "$dir/a" && "$dir/a" ||
    { echo "the headers do not serve C++"; bad=1; }
elif [ $bad -eq 0 ]; then
  echo "skipped the headers in C++: no compiler"
  echo "1 passed, 0 failed, 1 skipped"
fi
exit $bad
