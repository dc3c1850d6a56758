#!/usr/bin/env bash
# Responses and conversations that survive the server (serve --store). Usage: check_kept.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/kept.py
