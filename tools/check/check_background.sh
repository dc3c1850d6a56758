#!/usr/bin/env bash
# Responses that are made in the background. Usage: check_background.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/background.py
