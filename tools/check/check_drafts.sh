#!/usr/bin/env bash
# Speculation on the whole program. Usage: check_drafts.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/drafts.py
