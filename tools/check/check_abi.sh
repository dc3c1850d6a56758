#!/usr/bin/env bash
# What programs that are linked against the last release rely on: libevenkeel.so of that tag and of this tree, by abidiff.
# Usage: check_abi.sh BUILD_DIR [COMMIT in place of the last tag v*]
# tier: release
# runs: make
set -eu
cd "$(dirname "$0")/../.."
build=$1
case $build in *san) echo "a sanitizer's library is never linked against: not run"; exit 77 ;; esac
last=${2:-$(git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null || true)}
[ -n "$last" ] || { echo "there is no release yet: not run"; exit 77; }
command -v abidiff >/dev/null || { echo "abigail-tools is not installed: not run"; exit 77; }
dir=$(mktemp -d); trap 'git worktree remove --force "$dir/then" 2>/dev/null; rm -rf "$dir"' EXIT
git worktree add --quiet --detach "$dir/then" "$last"
# With types, which a release leaves out; the kernels for GPUs are no part of it.
for tree in "$dir/then" .; do
  make --no-print-directory -C "$tree" -j"$(nproc)" B="$dir/$(basename "$tree")-build" CFLAGS=-g CUDA=0 lib >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; exit 1; }
done
# 4: something changed, 8: in a way that breaks programs. Additions are fine.
status=0
abidiff --headers-dir1 "$dir/then/include" --headers-dir2 include --drop-private-types "$dir/then-build/libevenkeel.so" "$dir/.-build/libevenkeel.so" \
  >"$dir/said" 2>&1 || status=$?
cat "$dir/said"
[ $((status & ~4)) -eq 0 ] || { echo "programs of $last would not run: change SOVERSION in tools/make/lib.mk, or take it back"; exit 1; }
