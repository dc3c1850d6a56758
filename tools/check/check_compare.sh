#!/usr/bin/env bash
# bench --compare on the whole program. Usage: check_compare.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/compare.py
