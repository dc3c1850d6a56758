#!/usr/bin/env bash
# Runs test programs (cmocka) and check scripts, prints what failed, and closes with the one line
# `N passed, N failed` (`, N skipped`). A check script that exits 77 did not run and says why in its last line. Usage: run.sh BUILD_DIR PROGRAM...
set -u
build=$1; shift
passed=0; failed=0; skipped=0
log=$(mktemp); trap 'rm -f "$log"' EXIT
count() { # program output -> passed and failed tests
  local p f s
  p=$(grep -cE '^\[       OK \]' "$log"); f=$(grep -cE '^\[  FAILED  \] [a-zA-Z_0-9]+$' "$log")
  s=$(grep -cE '^\[  SKIPPED \] [a-zA-Z_0-9]+$' "$log"); [ "$s" -gt 0 ] && s=$((s / 2)) # once as it runs, once in the list
  if [ "$1" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
  passed=$((passed + p)); failed=$((failed + f)); skipped=$((skipped + s))
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
  "$s" "$build" >"$log" 2>&1; rc=$?
  case $rc in
    0) passed=$((passed + 1)); echo "ran $s" ;;
    77) skipped=$((skipped + 1)); echo "skipped $s: $(tail -n 1 "$log")" ;;
    *) failed=$((failed + 1)); echo "FAIL $s"; cat "$log" ;;
  esac
done
if [ "$skipped" -gt 0 ]; then echo "$passed passed, $failed failed, $skipped skipped"; else echo "$passed passed, $failed failed"; fi
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
