#!/usr/bin/env bash
# Stored replies of the whole program: equal to computed ones in every form, cut, continued, kept apart. Usage: check_replies.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
case $build in *san) echo "a trained model under a sanitizer takes minutes: not run"; exit 77 ;; esac
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/replies.py "$build/evenkeel" models/pocket
