#!/usr/bin/env bash
# Receipts of the whole program: signed by a server, recomputed in Python, verified, attacked. Usage: check_receipts.sh BUILD_DIR
command -v openssl >/dev/null || { echo "openssl is not installed: not run"; exit 77; }
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/receipts.py trained
