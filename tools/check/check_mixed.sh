#!/usr/bin/env bash
# 200 mixed requests to a cold and a warm server, after a restart and without the engine: equal bodies. Usage: check_mixed.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
case $build in *san) echo "a trained model under a sanitizer takes minutes: not run"; exit 77 ;; esac
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/mixed.py "$build/evenkeel" models/pocket
