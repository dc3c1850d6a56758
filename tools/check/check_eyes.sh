#!/usr/bin/env bash
# Fifteen pictures before the bundled model alone, at once and staggered beside text. Usage: check_eyes.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/eyes.py trained
