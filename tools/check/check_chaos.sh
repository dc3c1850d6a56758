#!/usr/bin/env bash
# Streams that outlive the replicas they began at. Usage: check_chaos.sh BUILD_DIR; for two minutes:
# tests/e2e/chaos.py BUILD_DIR/evenkeel models/pocket --seconds 120
# tier: all
case $1 in *san) echo "four sanitized servers take minutes: not run"; exit 77 ;; esac
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/chaos.py
