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
# The kernels for GPUs are no part of it.
make --no-print-directory -C "$dir/then" -j"$(nproc)" B="$dir/build" CUDA=0 "$dir/build/libevenkeel.so.$(sed -n 's/^VERSION := //p' "$dir/then/Makefile")" \
  >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; exit 1; }
make --no-print-directory B="$build" lib >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; exit 1; }
bad=0
# New functions and new fields at the end of a struct, whose size tells which fields a program knows, are fine.
printf '[suppress_type]\ntype_kind = struct\nhas_data_member_inserted_at = end\n' >"$dir/fine"
abidiff --headers-dir1 "$dir/then/include" --headers-dir2 include --drop-private-types --no-added-syms --suppressions "$dir/fine" \
  "$dir/build/libevenkeel.so" "$build/libevenkeel.so" || bad=1
# It is generous with fields that moved: all that were there are where they were.
awk 'BEGIN {print "#include <evenkeel_ops.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {"}
  /^typedef struct [a-z_]* {/ {name = $3; next}
  /^}/ {name = ""}
  name {sub(/\/\*.*/, ""); sub(/^ *\*.*/, ""); n = split($0, part, /[;,]/); for (i = 1; i < n; i++) if ($0 !~ /[()]/ && match(part[i], /[a-z_]+(\[[A-Za-z0-9_]*\])?$/)) {
    field = substr(part[i], RSTART, RLENGTH); sub(/\[.*/, "", field)
    printf "printf(\"%s.%s %%zu %%zu\\n\", offsetof(%s, %s), sizeof(((%s *)0)->%s));\n", name, field, name, field, name, field}}
  END {print "}"}' "$dir"/then/include/*.h >"$dir/fields.c"
for tree in "$dir/then" .; do
  ${CC:-cc} -I "$tree/include" "$dir/fields.c" -o "$dir/fields" && "$dir/fields" >"$dir/fields.$(basename "$tree")" || bad=1
done
[ "$(wc -l <"$dir/fields.then")" -gt 60 ] || { echo "the headers' structs are not found"; bad=1; }
diff "$dir/fields.then" "$dir/fields.." || bad=1
[ $bad -eq 0 ] || { echo "programs that were built with $last break: change SOVERSION in tools/make/lib.mk, or take it back"; exit 1; }
