#!/usr/bin/env bash
# Claude Code (tests/agents, pinned; 400 MB) against the server. Not part of `make check`. Usage: agents.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/.."
at=tests/agents
command -v npm >/dev/null || { echo "no npm (Debian: npm): not run"; exit 77; }
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "the pinned program is for Linux on x86-64: not run"; exit 77; }
if ! cmp -s $at/package-lock.json $at/node_modules/.from-lock; then
  (cd $at && timeout 600 npm ci --ignore-scripts --no-audit --no-fund >/dev/null 2>&1) || { echo "npm ci does not get the package: not run"; exit 77; }
  cp $at/package-lock.json $at/node_modules/.from-lock
fi
PYTHONDONTWRITEBYTECODE=1 exec python3 $at/claude_code.py "$1/evenkeel" models/pocket $at/node_modules/@anthropic-ai/claude-code-linux-x64/claude
