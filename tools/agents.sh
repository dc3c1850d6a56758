#!/usr/bin/env bash
# Coding agents (tests/agents, pinned; 2.2 GB, with the Node.js that some ask for) against the server. Not part of `make check`. Usage: agents.sh BUILD_DIR
set -eu
build=$1
cd "$(dirname "$0")/.."
at=tests/agents
. tools/npm.sh
npm_packages $at
export PYTHONDONTWRITEBYTECODE=1
passed=0; failed=0
agent() { # test, programs
  test=$1; shift
  last=$(python3 "$at/$test" "$build/evenkeel" models/pocket "${@/#/$at/node_modules/}" | tee >(cat >&2) | tail -n 1)
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1])); failed=$((failed + BASH_REMATCH[2]))
  else
    failed=$((failed + 1))
  fi
}
claude=@anthropic-ai/claude-code-linux-x64/claude
codex=@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex
agent claude_code.py $claude
agent claude_tools.py $claude
agent codex.py $codex
agent compaction.py $claude $codex
agent opencode.py opencode-linux-x64-baseline/bin/opencode
agent chat_agents.py .
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
