#!/usr/bin/env bash
# The description of the APIs. Usage: check_openapi.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/openapi.py
