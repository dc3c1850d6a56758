#!/usr/bin/env bash
# Every command that README.md, CONTRIBUTING.md and docs/ name works. Usage: check_docs.sh BUILD_DIR
# tier: all
set -eu
cd "$(dirname "$0")/../.."
build=$1
case $build in *san) echo "a trained model under a sanitizer takes minutes: not run"; exit 77 ;; esac
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
command -v curl >/dev/null || { echo "curl is not installed"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/docs.py "$build/evenkeel" "$build"
