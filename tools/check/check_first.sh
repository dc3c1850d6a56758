#!/usr/bin/env bash
# README's first ten minutes. Usage: check_first.sh BUILD_DIR
command -v curl >/dev/null || { echo "curl is not installed"; exit 77; }
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/first.py
