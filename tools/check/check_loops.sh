#!/usr/bin/env bash
# Replies that repeat themselves. Usage: check_loops.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/loops.py
