#!/usr/bin/env bash
# Clients that take what others need. Usage: check_tenants.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/tenants.py
