#!/usr/bin/env bash
# Damaged checkpoints end with one clear line: tests/e2e/damage.py on the bundled model, or on a tiny
# random one where there is none or a sanitizer is slow. Usage: check_damage.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
if [ ! -x "$build/evenkeel" ]; then # one layer's tests alone; `make check` always builds it
  echo "no $build/evenkeel: not run"
  exit 0
fi
model=models/pocket
case $build in *san) model=;; esac
if [ ! -e "${model:-none}/config.json" ]; then
  model=$build/tiny
  python3 tests/e2e/tiny_model.py "$model"
fi
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/damage.py "$build/evenkeel" "$model"
