#!/usr/bin/env bash
# Conversations that are edited or summarized before the reply. Usage: check_context.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/context.py
