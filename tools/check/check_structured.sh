#!/usr/bin/env bash
# Structured output as clients see it. Usage: check_structured.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/structured.py
