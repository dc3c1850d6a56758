#!/usr/bin/env bash
# Pages that replicas share by a server, and what that server may do. Usage: check_shared.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/shared.py
