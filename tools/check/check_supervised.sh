#!/usr/bin/env bash
# A server under a supervisor (sd_notify). Usage: check_supervised.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/supervised.py
