#!/usr/bin/env bash
# The Makefile's case for macOS on Apple's processors: a cross compiler (tests/macos/cross.sh) builds the program, the decoders'
# program and the library against the headers and the functions of macOS 11. No call is unknown, no type is another, every name is
# somewhere, the library exports what it has to. Nothing was ever run there. What the linker of this check lacks (`ld -r`) is not
# tried: libevenkeel.a.
# Usage: check_macos.sh [BUILD_DIR]
# tier: release
set -u
cd "$(dirname "$0")/../.." || exit
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
tests/macos/cross.sh "$dir/cross" || exit
bad=0
CCACHE_NOHASHDIR=1 nice make --no-print-directory -j"$(nproc)" UNAME_S=Darwin ARCH=aarch64 B="$dir/build" OPT_release=-O1 AR=llvm-ar \
  CC="$dir/cross/bin/cc -Werror=implicit-function-declaration -Werror=incompatible-pointer-types -Werror=int-conversion" \
  PKG_CONFIG="$dir/cross/bin/pkg-config" "$dir/build/evenkeel" "$dir/build/evenkeel-decode" "$dir/build/libevenkeel.0.dylib" >"$dir/log" 2>&1 || bad=1
grep -E 'error:|undefined symbol' "$dir/log" | head -n 40
for file in evenkeel evenkeel-decode libevenkeel.0.dylib; do
  case $(od -An -tx4 -N8 "$dir/build/$file" 2>&1) in *feedfacf*0100000c*) ;; *) echo "$file is no program for Apple's processors"; bad=1 ;; esac
done
exported=$(llvm-nm -gU "$dir/build/libevenkeel.0.dylib" | sed -n 's/.* T _//p' | sort)
wanted=$(sed -n 's/^ *\([a-z][a-z0-9_]*\);$/\1/p' src/lib/evenkeel.map | sort)
[ "$exported" = "$wanted" ] || { echo "libevenkeel.0.dylib exports other names than src/lib/evenkeel.map has"; bad=1; }
[ $bad -eq 0 ] && echo "$(find "$dir/build/src" -name '*.o' | wc -l) objects, two programs and a library are linked for macOS"
exit $bad
