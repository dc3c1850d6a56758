#!/usr/bin/env bash
# The journal and its replay. Usage: check_journal.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/journal.py
