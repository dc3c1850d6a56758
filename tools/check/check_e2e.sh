#!/usr/bin/env bash
# The server as its clients see it. Usage: check_e2e.sh BUILD_DIR
# threads: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/e2e.py
