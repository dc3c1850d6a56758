#!/usr/bin/env bash
# serve's start: its port before its model, the files that it makes, key files of others. Usage: check_start.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/start.py
