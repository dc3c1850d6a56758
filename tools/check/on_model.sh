#!/usr/bin/env bash
# Runs a test of the whole program on the bundled model, or on a tiny random one where there is none or
# where a sanitizer would take minutes; `trained`: not there. Usage: on_model.sh BUILD_DIR TEST.py [trained]
set -eu
cd "$(dirname "$0")/../.."
build=$1
if [ ! -x "$build/evenkeel" ]; then # one layer's tests alone; `make check` always builds it
  echo "no $build/evenkeel: not run"
  exit 77
fi
model=models/pocket
case $build in *san) model=;; esac
if [ "${3:-}" = trained ]; then
  [ -n "$model" ] || { echo "a trained model under a sanitizer takes minutes: not run"; exit 77; }
  [ -e "$model/config.json" ] || { echo "no $model: not run"; exit 77; }
fi
if [ ! -e "${model:-none}/config.json" ]; then
  model=$build/tiny
  python3 tests/e2e/tiny_model.py "$model"
fi
PYTHONDONTWRITEBYTECODE=1 python3 "$2" "$build/evenkeel" "$model"
