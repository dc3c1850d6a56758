#!/usr/bin/env bash
# GGUF files on the whole program. Usage: check_gguf.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/gguf.py
