#!/usr/bin/env bash
# 200 connections for a few seconds (`make load`: a minute). Usage: check_load.sh BUILD_DIR
# tier: all
# runs: alone
# threads: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/load.py
