#!/usr/bin/env bash
# Streams that are cut behind each of their events and continue at another server. Usage: check_resume.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/resume.py
