#!/usr/bin/env bash
# Attacks on a server, bounded, on loopback. Usage: check_hostile.sh BUILD_DIR
# tier: all
# runs: alone
# threads: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/hostile.py
