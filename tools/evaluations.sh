#!/usr/bin/env bash
# The evaluation tools of docs/EVALUATE.md that npm has (tests/evaluations, pinned; 2 GB, with the Node.js they ask for) against the
# server. Not part of `make check`. Usage: evaluations.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/.."
. tools/npm.sh
npm_packages tests/evaluations
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/evaluations/evaluations.py "$1/evenkeel" models/pocket
