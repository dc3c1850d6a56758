#!/usr/bin/env bash
# Pictures and sounds through the command preprocess. Usage: check_media.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
[ -x "$1/evenkeel" ] || { echo "no $1/evenkeel: not run"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/media.py "$1/evenkeel"
