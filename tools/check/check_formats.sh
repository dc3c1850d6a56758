#!/usr/bin/env bash
# The bundled model in other formats: tokens and divergence. Usage: check_formats.sh BUILD_DIR
# tier: all
set -u
case $1 in *san) echo "minutes under a sanitizer: not run"; exit 77;; esac
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/formats.py
