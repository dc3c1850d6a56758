#!/usr/bin/env bash
# Cached prefixes of the whole program: hits, a restart, kill -9, damaged files. Usage: check_cache.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/cache.py trained
