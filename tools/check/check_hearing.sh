#!/usr/bin/env bash
# Transcriptions through the server, by random models. Usage: check_hearing.sh BUILD_DIR
# tier: all
set -eu
cd "$(dirname "$0")/../.."
[ -x "$1/evenkeel" ] || { echo "no $1/evenkeel: not run"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/hearing.py "$1/evenkeel" "$dir"
