#!/usr/bin/env bash
# Conversations as clients send them back. Usage: check_history.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/history.py
