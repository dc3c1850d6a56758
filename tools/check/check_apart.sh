#!/usr/bin/env bash
# Prompts computed by one server and answered by another with other instructions. Usage: check_apart.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/apart.py
