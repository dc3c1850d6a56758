#!/usr/bin/env bash
# Equal requests at once: one computes, the others read its tokens; clients leave. Usage: check_together.sh BUILD_DIR
# threads: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/together.py trained
