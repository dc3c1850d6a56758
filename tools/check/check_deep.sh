#!/usr/bin/env bash
# A journal at 30,000 tokens of depth, replayed on every instruction set. Usage: check_deep.sh BUILD_DIR
# tier: all
set -eu
cd "$(dirname "$0")/../.."
if [ ! -x "$1/evenkeel" ]; then # one layer's tests alone; `make check-all` always builds it
  echo "no $1/evenkeel: not run"
  exit 77
fi
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/e2e/deep.py "$1/evenkeel"
