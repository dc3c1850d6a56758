#!/usr/bin/env bash
# pull, list and rm against a server that plays the Hugging Face Hub. Usage: check_hub.sh BUILD_DIR
# tier: all
# runs: quiet
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/hub.py
