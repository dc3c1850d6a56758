#!/usr/bin/env bash
# Events about cached pages, and a subscriber that rebuilds them. REQUESTS=10000 for more.
# Usage: check_events.sh BUILD_DIR
# tier: all
set -eu
cd "$(dirname "$0")/../.."
build=$1
case $build in *san) echo "a trained model under a sanitizer takes minutes: not run"; exit 77 ;; esac
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
for python in python3 /usr/bin/python3 none; do # Debian's package is for Debian's interpreter
  $python -c 'import zmq' 2>/dev/null && break
done
[ $python != none ] || { echo "python3-zmq is not installed (make setup-checks): not run"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 timeout 900 $python tests/e2e/kv_events.py "$build/evenkeel" models/pocket "${REQUESTS:-600}"
