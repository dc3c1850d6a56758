#!/usr/bin/env bash
# The server as its clients see it: tests/e2e/e2e.py on the bundled model, or on a tiny random one
# where there is none. Usage: check_e2e.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
if [ ! -x "$build/evenkeel" ]; then # one layer's tests alone; `make check` always builds it
  echo "no $build/evenkeel: not run"
  exit 0
fi
model=models/pocket
case $build in *san) model=;; esac # a trained model under a sanitizer takes minutes
if [ ! -e "${model:-none}/config.json" ]; then
  model=$build/tiny
  python3 tests/e2e/tiny_model.py "$model"
fi
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/e2e.py "$build/evenkeel" "$model"
