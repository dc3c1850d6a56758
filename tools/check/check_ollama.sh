#!/usr/bin/env bash
# Ollama's API, and the paths of llama.cpp's server. Usage: check_ollama.sh BUILD_DIR
# tier: all
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/ollama.py
