#!/usr/bin/env bash
# On a machine with a GPU: bits, compute-sanitizer on small cases, then speed. Usage: device.sh PROGRAM, the program
# being build/release/tests/cuda/device/device, which needs nothing beside it. Takes about a minute.
set -u
program=${1:-build/release/tests/cuda/device/device}
rc=0
"$program" bits || rc=$?
[ "$rc" -eq 77 ] && exit 77
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    echo "== $tool"
    api=; [ $tool = memcheck ] && api="--report-api-errors no" # a kernel is looked for in every module
    compute-sanitizer --tool $tool $api --error-exitcode 9 "$program" quick 2>&1 | tail -n 12
    [ "${PIPESTATUS[0]}" -eq 0 ] || rc=1
  done
fi
"$program" speed || rc=1
exit $rc
