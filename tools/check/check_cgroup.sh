#!/usr/bin/env bash
# The server under a real control group's memory limit. Usage: check_cgroup.sh BUILD_DIR
case $1 in *san) echo "sanitizers take memory of their own: not run"; exit 77 ;; esac
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/cgroup.py
