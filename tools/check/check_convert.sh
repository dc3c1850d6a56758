#!/usr/bin/env bash
# The command convert. Usage: check_convert.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/convert.py
