#!/usr/bin/env bash
# 200 mixed requests to a cold and a warm server, after a restart and without the engine: equal bodies. Usage: check_mixed.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/mixed.py trained
