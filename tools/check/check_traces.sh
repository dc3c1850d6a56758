#!/usr/bin/env bash
# Traces of requests. Usage: check_traces.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/traces.py
