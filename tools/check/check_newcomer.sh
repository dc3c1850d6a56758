#!/usr/bin/env bash
# The first evening at a terminal: widths, pipes, dragged files, Tab. Usage: check_newcomer.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/newcomer.py
