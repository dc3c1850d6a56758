#!/usr/bin/env bash
# The files under src: no circle inside of src/cuda, src/gpu and src/engine, none across folders, no struct of more than 60
# members, no folder of more than 45 files (check_graph.py). And that tool finds circles that are planted. Usage: check_graph.sh BUILD_DIR
set -u
cd "$(dirname "$0")/../.." || exit
build=${1:-build/release}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
bad=0
plant() { # what shall be said (empty: nothing); lines `FILE: TEXT` on standard input
  local file text
  rm -rf "$dir/src" "$dir/o"
  while IFS= read -r line; do
    file=${line%%: *} text=${line#*: }
    mkdir -p "$dir/$(dirname "$file")" "$dir/o/$(dirname "$file")"
    printf '%b\n' "$text" >"$dir/$file"
  done
  for file in $(cd "$dir" && find src -name '*.c'); do
    ${CC:-cc} -I"$dir/src" -c -o "$dir/o/${file%.c}.o" "$dir/$file" || bad=1
  done
  said=$(tools/check/check_graph.py --root "$dir" o)
  if [ -z "$1" ]; then
    [ -z "$said" ] || { echo "a tree without a circle: $said"; bad=1; }
  elif ! grep -q "$1" <<<"$said"; then
    echo "a planted circle is not found, '$1': $said"; bad=1
  fi
}
plant '' <<'END'
src/gpu/a.h: int a(void);
src/gpu/a.c: #include "gpu/b.h"\nint a(void) { return b(); }
src/gpu/b.h: int b(void);
src/gpu/b.c: int b(void) { return 1; }
END
plant 'circle of 2 files: src/gpu/a src/gpu/b' <<'END' # by an include
src/gpu/a.h: #include "gpu/b.h"
src/gpu/b.h: struct b;
src/gpu/b.c: #include "gpu/a.h"
END
plant 'src/gpu/c -> src/gpu/a: src/gpu/c.c uses a' <<'END' # by calls, through three files and without a header
src/gpu/a.c: int b(void);\nint a(void) { return b(); }
src/gpu/b.c: int c(void);\nint b(void) { return c(); }
src/gpu/c.c: int a(void);\nint c(void) { return a(); }
END
plant 'circle of 2 folders: src/base src/base/deep' <<'END' # of folders, whose files have none
src/base/a.c: int b(void);\nint a(void) { return b(); }
src/base/deep/b.c: int c(void);\nint b(void) { return c(); }
src/base/c.c: int c(void) { return 1; }
END
plant 'struct s has 61 members' < <(echo "src/text/s.h: struct s { struct { int a, b; } one; void (*f)(int, int); int $(seq -s, -f 'm%g' 59); };")
plant 'holds 46 files' < <(for i in $(seq 46); do echo "src/text/f$i.h: struct s;"; done)
tools/check/check_graph.py "$build" || bad=1
exit $bad
