#!/usr/bin/env bash
# Files of videos through the server and run, to a random model with eyes. Usage: check_video.sh BUILD_DIR
# tier: all
set -eu
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
[ -x "$1/evenkeel" ] || { echo "no $1/evenkeel: not run"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/video.py "$1/evenkeel" "$folder"
