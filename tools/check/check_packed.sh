#!/usr/bin/env bash
# Packed weights kept in a file. Usage: check_packed.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/packed.py
