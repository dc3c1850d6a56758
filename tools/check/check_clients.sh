#!/usr/bin/env bash
# The official SDKs (tests/clients, pinned) against the server. Usage: check_clients.sh BUILD_DIR
# Not run where node, or the packages and the registry they come from, are not there.
# tier: all
set -eu
cd "$(dirname "$0")/../.."
case $1 in *san) echo "the SDKs have time limits of their own: not run under a sanitizer"; exit 77 ;; esac
command -v node >/dev/null && command -v npm >/dev/null || { echo "no node or npm (Debian: nodejs npm): not run"; exit 77; }
major=$(node -p 'process.versions.node.split(".")[0]')
[ "$major" -ge 18 ] || { echo "node $major is too old for the SDKs: not run"; exit 77; }
at=tests/clients
if ! cmp -s $at/package-lock.json $at/node_modules/.from-lock; then
  (cd $at && timeout 120 npm ci --no-audit --no-fund >/dev/null 2>&1) || { echo "npm ci does not get the packages: not run"; exit 77; }
  cp $at/package-lock.json $at/node_modules/.from-lock
fi
exec tools/check/on_model.sh "$1" $at/clients.py
