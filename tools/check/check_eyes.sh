#!/usr/bin/env bash
# Fifteen pictures before the bundled model alone, at once and staggered beside text. Usage: check_eyes.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
case $build in *san) echo "a trained model under a sanitizer takes minutes: not run"; exit 77 ;; esac
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/eyes.py "$build/evenkeel" models/pocket
