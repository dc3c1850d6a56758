#!/usr/bin/env bash
# tools/bench: compare.py, agents.py, the plots, and `bench --json`. Usage: check_compare.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/compare.py
