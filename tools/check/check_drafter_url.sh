#!/usr/bin/env bash
# Drafts from another server: right, wrong, slow, rude and absent ones. Usage: check_drafter_url.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/drafter_url.py
