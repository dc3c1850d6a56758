#!/usr/bin/env bash
# Runs a test of the whole program on the bundled model, or on a tiny random one where there is none or
# where a sanitizer would take minutes. Usage: on_model.sh BUILD_DIR TEST.py
set -eu
cd "$(dirname "$0")/../.."
build=$1
if [ ! -x "$build/evenkeel" ]; then # one layer's tests alone; `make check` always builds it
  echo "no $build/evenkeel: not run"
  exit 77
fi
model=models/pocket
case $build in *san) model=;; esac
if [ ! -e "${model:-none}/config.json" ]; then
  model=$build/tiny
  python3 tests/e2e/tiny_model.py "$model"
fi
PYTHONDONTWRITEBYTECODE=1 python3 "$2" "$build/evenkeel" "$model"
