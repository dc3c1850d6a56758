#!/usr/bin/env bash
# Web pages of others, and names that others gave this machine. Usage: check_origins.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/origins.py
