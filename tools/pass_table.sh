#!/usr/bin/env bash
# The bundled model's pass table (docs/POCKET.md), measured with our own engine over HTTP.
# Usage: pass_table.sh PROGRAM [options of models/training/eval.py, e.g. --n 50]
set -euo pipefail
cd "$(dirname "$0")/.."
program=$1; shift
port_file=$(mktemp -u)
"$program" serve --port 0 --port-file "$port_file" --max-requests 8 --ctx 4096 2>/dev/null &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null; rm -f "$port_file"' EXIT
for _ in $(seq 200); do [ -s "$port_file" ] && break; sleep 0.05; done
[ -s "$port_file" ] || { echo "pass_table: the server did not start" >&2; exit 1; }
PYTHONDONTWRITEBYTECODE=1 python3 models/training/eval.py --url "http://127.0.0.1:$(cat "$port_file")" "$@"
