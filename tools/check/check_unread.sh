#!/usr/bin/env bash
# A server whose standard error nobody reads. Usage: check_unread.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/unread.py
