#!/usr/bin/env bash
# The command convert. Usage: check_convert.sh BUILD_DIR
# tier: all
set -u
case $1 in *san) echo "its limits on memory and time are not for a sanitizer: not run"; exit 77;; esac
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/convert.py
