#!/usr/bin/env bash
# Tools that are more than functions, as their clients see them. Usage: check_tools.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/tools.py
