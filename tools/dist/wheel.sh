#!/usr/bin/env bash
# Lays out the wheel's files and packs them, behind a check that its tag is true. Called by make wheel.
# Usage: wheel.sh DIST VERSION   (SOURCE_DATE_EPOCH: the time of every file)
set -euo pipefail
dist=$1 version=$2 tree=$dist/wheel
fail() { echo "wheel: $*" >&2; exit 1; }

# What manylinux_2_31 has: its C library, and nothing newer.
for file in libevenkeel.so evenkeel-decode; do
  needed=$(objdump -p "$dist/$file" | awk '$1 == "NEEDED" && $2 !~ /^(libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|libc\.so\.6|ld-linux-x86-64\.so\.2)$/ {print $2}')
  [ -z "$needed" ] || fail "$file needs ${needed//$'\n'/, } from the machine"
  newest=$(objdump -T "$dist/$file" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)
  [ "$(printf '%s\n' "$newest" GLIBC_2.31 | sort -V | tail -n 1)" = GLIBC_2.31 ] || fail "$file has symbols of $newest, newer than 2.31"
done
# Names of libraries inside would meet those of the process.
exported=$(objdump -T "$dist/libevenkeel.so" | awk '$2 == "g" && $4 == ".text" && $NF !~ /^(ek|evenkeel)_/ {print $NF}' | head -n 3)
[ -z "$exported" ] || fail "libevenkeel.so exports ${exported//$'\n'/, }"

rm -rf "$tree"
install -d "$tree/evenkeel/models"
install -m 644 python/evenkeel/*.py python/evenkeel/py.typed "$tree/evenkeel"
install -m 755 "$dist/libevenkeel.so" "$tree/evenkeel/libevenkeel.so.0"
install -m 755 "$dist/evenkeel-decode" "$tree/evenkeel"
for model in pocket pocket-drafter; do
  install -d "$tree/evenkeel/models/$model"
  install -m 644 models/$model/* "$tree/evenkeel/models/$model"
done
"$(dirname "$0")/parts.py" "$dist/libraries" "${DIST_FETCHED:-$dist/fetched}" "$tree" "$version"
rm "$tree/sbom.spdx.json" # it is the tarball's, which has more parts
install -m 644 LICENSE "$tree/licences"
"$(dirname "$0")/wheel.py" "$tree" "$dist" "$version"
