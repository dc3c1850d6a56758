#!/usr/bin/env bash
# Claude Code, Codex and opencode (tests/agents, pinned; 1.1 GB) against the server. Not part of `make check`. Usage: agents.sh BUILD_DIR
set -eu
build=$1
cd "$(dirname "$0")/.."
at=tests/agents
command -v npm >/dev/null || { echo "no npm (Debian: npm): not run"; exit 77; }
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "the pinned program is for Linux on x86-64: not run"; exit 77; }
if ! cmp -s $at/package-lock.json $at/node_modules/.from-lock; then
  (cd $at && timeout 600 npm ci --ignore-scripts --no-audit --no-fund >/dev/null 2>&1) || { echo "npm ci does not get the package: not run"; exit 77; }
  cp $at/package-lock.json $at/node_modules/.from-lock
fi
export PYTHONDONTWRITEBYTECODE=1
passed=0; failed=0
agent() { # test, program
  last=$(python3 "$at/$1" "$build/evenkeel" models/pocket "$at/node_modules/$2" | tee /dev/stderr | tail -n 1)
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1])); failed=$((failed + BASH_REMATCH[2]))
  else
    failed=$((failed + 1))
  fi
}
agent claude_code.py @anthropic-ai/claude-code-linux-x64/claude
agent codex.py @openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex
agent opencode.py opencode-linux-x64-baseline/bin/opencode
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
