#!/usr/bin/env bash
# The folder evenkeel/ and its tarball, behind a check that the programs run on Debian 11. Called by make dist.
# Usage: pack.sh DIST VERSION ARCH ARCHITECTURES-OF-GPUS   (SOURCE_DATE_EPOCH: the time of every file)
set -euo pipefail
dist=$1 version=$2 arch=$3 archs=$4
tree=$dist/evenkeel-tree/evenkeel tarball=$dist/evenkeel-$version-$arch-linux.tar.xz
objdump=objdump printer=$dist/evenkeel
if [ "$arch" = aarch64 ]; then # its pages are printed under emulation
  objdump=aarch64-linux-gnu-objdump printer=$dist/printer
  printf '#!/bin/sh\nexec qemu-aarch64 -cpu max -L "%s" "%s" "$@"\n' "$(realpath "$dist/libraries/libc")" "$(realpath "$dist/evenkeel")" >"$printer"
  chmod +x "$printer"
fi
fail() { echo "dist: $*" >&2; exit 1; }
. "$(dirname "$0")/needs.sh"

# Libraries that a C library of 2.30 has, and no newer symbol of theirs.
for program in evenkeel evenkeel-decode; do
  check_needs "$dist/$program" 2.30 $objdump
  echo "  $program: $(stat -c %s "$dist/$program") bytes, newest symbol $newest"
done

rm -rf "$dist/evenkeel-tree"
"$(dirname "$0")/layout.sh" "$dist" "$tree" "$printer"
"$(dirname "$0")/parts.py" "$dist/libraries" "${DIST_FETCHED:-$dist/fetched}" "$tree" "$version"

tar -C "$dist/evenkeel-tree" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mode=u+rwX,go=rX \
  --mtime="@$SOURCE_DATE_EPOCH" -cf - evenkeel | xz -9e -T1 >"$tarball.new"
mv "$tarball.new" "$tarball"
cp "$tree/sbom.spdx.json" "${tarball%.tar.xz}.spdx.json"
(cd "$dist" && sha256sum "${tarball##*/}" >"${tarball##*/}.sha256")
echo "  $tarball: $(stat -c %s "$tarball") bytes, GPU kernels for $archs"
