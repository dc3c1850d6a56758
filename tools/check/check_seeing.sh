#!/usr/bin/env bash
# Pictures and sounds through every API, to random models with eyes and ears. Usage: check_seeing.sh BUILD_DIR
# tier: all
set -eu
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
[ -x "$1/evenkeel" ] || { echo "no $1/evenkeel: not run"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/seeing.py "$1/evenkeel" "$folder"
