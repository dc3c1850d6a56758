#!/usr/bin/env bash
# Stored replies of the whole program: equal to computed ones in every form, cut, continued, kept apart. Usage: check_replies.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/replies.py trained
