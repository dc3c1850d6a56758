#!/usr/bin/env bash
# The promise in a minute: serves the bundled model, asks it something that needs a tool, and asks the
# same 15 times in company. Usage: demo.sh PROGRAM (`make demo` builds it first). Needs curl and python3.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/release/evenkeel}
work=$(mktemp -d)
server=
finish() {
  if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
    kill "$server" && wait "$server" || true
  fi
  rm -rf "$work"
}
trap finish EXIT

echo "== 1. start the server on the bundled model"
"$program" serve --port 0 --port-file "$work/port" >"$work/out" 2>"$work/log" &
server=$!
for _ in $(seq 600); do
  [ -s "$work/port" ] && break
  kill -0 "$server" 2>/dev/null || { echo "the server did not start:"; cat "$work/log"; exit 1; }
  sleep 0.1
done
[ -s "$work/port" ] || { echo "the server was not ready within a minute:"; cat "$work/log"; exit 1; }
cat "$work/out"
url=http://127.0.0.1:$(cat "$work/port")/v1/chat/completions

echo
echo "== 2. a chat with a tool: the call, then the tool's result, then the answer as it is generated"
python3 tools/demo.py question >"$work/question.json"
curl -sS --fail-with-body -H 'content-type: application/json' -d @"$work/question.json" "$url" >"$work/call.json"
python3 tools/demo.py check-call "$work/call.json"
python3 tools/demo.py result "$work/call.json" >"$work/result.json"
curl -sSN --fail-with-body -H 'content-type: application/json' -d @"$work/result.json" "$url" | python3 tools/demo.py show

echo
echo "== 3. the same question 15 times, each starting a little later, while other chats run"
python3 tools/demo.py together "$url" "$work/call.json"

echo
echo "== 4. tokens that were guessed while they were generated"
python3 tools/demo.py drafts "${url%/v1/*}/metrics"

echo
echo "== 5. a picture that was drawn just now, and what the model reads"
python3 tools/demo.py picture "$url"

echo
echo "== 6. stop the server"
kill -TERM "$server"
status=0
wait "$server" || status=$?
server=
echo "the server finished with exit status $status"
echo
echo "next: \`$program run\` is a chat with this model, \`$program names\` lists real ones; README.md goes on"
exit "$status"
