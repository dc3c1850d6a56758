#!/usr/bin/env bash
# Lays out the wheel's files and packs them, behind a check that its tag is true. Called by make wheel.
# Usage: wheel.sh DIST VERSION   (SOURCE_DATE_EPOCH: the time of every file)
set -euo pipefail
dist=$1 version=$2 tree=$dist/wheel
fail() { echo "wheel: $*" >&2; exit 1; }
. "$(dirname "$0")/needs.sh"

# What manylinux_2_31 has: its C library, and nothing newer.
for file in libevenkeel.so evenkeel-decode; do check_needs "$dist/$file" 2.31; done
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
