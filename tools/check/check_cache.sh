#!/usr/bin/env bash
# Cached prefixes of the whole program: hits, a restart, kill -9, damaged files. Usage: check_cache.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
case $build in *san) echo "a trained model under a sanitizer takes minutes: not run"; exit 77 ;; esac
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/cache.py "$build/evenkeel" models/pocket
