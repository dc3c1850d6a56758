#!/usr/bin/env bash
# selftest on a random model that sees and hears, in each form in which towers are stored. Usage: check_senses.sh BUILD_DIR
# tier: all
set -eu
cd "$(dirname "$0")/../.."
[ -x "$1/evenkeel" ] || { echo "no $1/evenkeel: not run"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/senses.py "$1/evenkeel" "$dir"
