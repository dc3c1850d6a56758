#!/usr/bin/env bash
# Stored replies in a file: exported, imported, served without the model's weights, damaged, forged. Usage: check_cassette.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
case $build in *san) echo "a trained model under a sanitizer takes minutes: not run"; exit 77 ;; esac
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/cassette.py "$build/evenkeel" models/pocket
