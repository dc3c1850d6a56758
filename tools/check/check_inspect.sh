#!/usr/bin/env bash
# inspect describes checkpoints that run and those that do not. Usage: check_inspect.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/inspect.py
