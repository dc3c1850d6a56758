#!/usr/bin/env bash
# Pictures and sounds through the commands preprocess, logits and generate. Usage: check_media.sh BUILD_DIR
# tier: all
set -eu
cd "$(dirname "$0")/../.."
[ -x "$1/evenkeel" ] || { echo "no $1/evenkeel: not run"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
python3 tests/e2e/media.py "$1/evenkeel"
python3 tests/e2e/given.py "$1/evenkeel"
