#!/usr/bin/env bash
# bench: --compare, --json, and the plots of both. Usage: check_compare.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/compare.py
