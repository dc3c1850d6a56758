#!/usr/bin/env bash
# Conversations that the server keeps. Usage: check_conversations.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/conversations.py
