#!/usr/bin/env bash
# The program around the chat, as a new user meets it. Usage: check_program.sh BUILD_DIR
# tier: all
# threads: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/program.py
