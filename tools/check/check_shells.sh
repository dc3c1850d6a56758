#!/usr/bin/env bash
# Man pages and completions, in man, bash, zsh and fish. Usage: check_shells.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/shells.py
