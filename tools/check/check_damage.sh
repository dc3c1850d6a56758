#!/usr/bin/env bash
# Damaged checkpoints end with one clear line. Usage: check_damage.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/damage.py
