#!/usr/bin/env bash
# Receipts of the whole program: signed by a server, recomputed in Python, verified, attacked. Usage: check_receipts.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
case $build in *san) echo "a trained model under a sanitizer takes minutes: not run"; exit 77 ;; esac
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
command -v openssl >/dev/null || { echo "openssl is not installed: not run"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/receipts.py "$build/evenkeel" models/pocket
