#!/usr/bin/env bash
# Stored replies in a file: exported, imported, served without the model's weights, damaged, forged. Usage: check_cassette.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/cassette.py trained
