#!/usr/bin/env bash
# Makes tarball, packages and image in two copies of this tree, in folders of different lengths, time zones and masks, and compares the
# bytes. Called by make dist-check. Usage: twice.sh [VARIABLE=VALUE of make...]
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# Both copies first: the tree may change while they are built.
for copy in a another/folder; do
  mkdir -p "$dir/$copy"
  git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$dir/$copy"
  [ ! -d tools/page/node_modules ] || cp -r tools/page/node_modules "$dir/$copy/tools/page"
done
one() { # folder, zone, mask, variables of make
  (umask "$3" && cd "$dir/$1" && TZ=$2 make --no-print-directory -j"$(nproc)" DIST_FETCHED="$dir/fetched" "${@:4}" dist) >"$dir/log" 2>&1 ||
    { tail -n 20 "$dir/log"; exit 1; }
  (cd "$dir/$1/build/dist" && sha256sum evenkeel-*.tar.xz *.deb evenkeel-*-oci.tar)
}
first=$(one a Etc/UTC 022 "$@") || { echo "$first"; exit 1; }
second=$(one another/folder Asia/Tokyo 077 "$@") || { echo "$second"; exit 1; }
echo "$first"
[ "$first" = "$second" ] || { echo "dist: two builds differ; the second: $second" >&2; exit 1; }
echo "dist: two builds have the same bytes"
