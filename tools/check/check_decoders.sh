#!/usr/bin/env bash
# Decoders of strangers' pictures: slow, lying, damaged, chatty, killed, absent. Usage: check_decoders.sh BUILD_DIR
# tier: all
set -eu
cd "$(dirname "$0")/../.."
case $1 in *san) echo "decoders under a sanitizer have no time that says anything: not run"; exit 77 ;; esac
[ -x "$1/evenkeel" ] || { echo "no $1/evenkeel: not run"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/decoders.py "$1/evenkeel" "$dir"
