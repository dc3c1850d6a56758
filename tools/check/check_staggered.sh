#!/usr/bin/env bash
# Fifteen tool calls of the bundled model alone, at once and staggered. Usage: check_staggered.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/staggered.py trained
