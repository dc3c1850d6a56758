#!/usr/bin/env bash
# Gets the libraries of the page that npm has, pinned by hash in package-lock.json, where npm is; without them the page does
# with Debian's. Never fails: the build works without. Usage: get.sh
set -u
cd "$(dirname "$0")"
cmp -s package-lock.json node_modules/.from-lock && exit 0
command -v npm >/dev/null || { echo "setup: no npm (Debian: npm): the page shows formulas as they are written"; exit 0; }
limited() { if command -v timeout >/dev/null; then timeout 120 "$@"; else "$@"; fi; } # macOS has none
if limited npm ci --ignore-scripts --no-audit --no-fund >/dev/null 2>&1; then cp package-lock.json node_modules/.from-lock
else echo "setup: npm does not get the packages of tools/page: the page shows formulas as they are written"; fi
exit 0
