#!/usr/bin/env bash
# `run` as a person at a terminal sees it. Usage: check_terminal.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/terminal.py
