#!/usr/bin/env bash
# Runs test programs (cmocka) and check scripts, prints what failed, and closes with the one line
# `N passed, N failed`. Usage: run.sh BUILD_DIR PROGRAM...
set -u
build=$1; shift
passed=0; failed=0
log=$(mktemp); trap 'rm -f "$log"' EXIT
count() { # program output -> passed and failed tests
  local p f
  p=$(grep -cE '^\[       OK \]' "$log"); f=$(grep -cE '^\[  FAILED  \] [a-zA-Z_0-9]+$' "$log")
  if [ "$1" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
  passed=$((passed + p)); failed=$((failed + f))
  if [ "$1" -ne 0 ]; then echo "FAIL $2 (exit $1)"; tail -n 40 "$log"; fi
}
for t in "$@"; do
  start=$SECONDS
  "$t" >"$log" 2>&1; rc=$?
  echo "ran ${t#"$build"/} ($((SECONDS - start)) s)"
  count $rc "$t"
done
for s in ${CHECKS-tools/check/check_*.sh}; do
  [ -e "$s" ] || continue
  if "$s" "$build" >"$log" 2>&1; then passed=$((passed + 1)); echo "ran $s"
  else failed=$((failed + 1)); echo "FAIL $s"; cat "$log"; fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
