#!/usr/bin/env bash
# Wrong calls and odd files, command by command. Usage: check_calls.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/calls.py
