#!/usr/bin/env bash
# Batches: the same bytes from engines and servers, whole, in shards, killed and stopped. Usage: check_batch.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/batch.py
