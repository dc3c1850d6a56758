#!/usr/bin/env bash
# run.sh counts what passed, failed and was left out; nothing that did not run counts as passed.
set -u
cd "$(dirname "$0")/../.." || exit
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/tests/ops"
bad=0

fake() { # file, exit status; standard input is what it prints
  { echo '#!/usr/bin/env bash'; echo "cat <<'END'"; cat; echo END; echo "exit $2"; } >"$dir/$1"
  chmod +x "$dir/$1"
}
expect() { # closing line, programs; CHECKS and CPUINFO come from the caller
  local want=$1 got
  shift
  got=$(tools/check/run.sh "$dir" "$@" | tail -n 1)
  [ "$got" = "$want" ] || { echo "run.sh $* ends with '$got', not with '$want'"; bad=1; }
}

fake passes 0 <<<$'[ RUN      ] a\n[       OK ] a\n[==========] 1 test(s) run.\n[  PASSED  ] 1 test(s).'
fake skips 0 <<<$'[       OK ] a\n[  SKIPPED ] b\n[==========] 2 test(s) run.\n[  PASSED  ] 1 test(s).\n[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] b\n\n 1 SKIPPED TEST(S)'
fake fails 1 <<<$'[       OK ] a\n[  FAILED  ] b\n[==========] 2 test(s) run.\n[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] b'
fake crashes 139 <<<'[       OK ] a'
fake empty 0 <<<'[==========] 0 test(s) run.'
fake rows 0 <<<$'skipped that: why\n7 passed, 0 failed, 2 skipped'
fake wrong 1 <<<'6 passed, 1 failed'
fake plain 0 <<<'fine'
fake broken 1 <<<'3 passed, 0 failed'
fake absent 77 <<<'not installed'

export CHECKS=
expect '1 passed, 0 failed' "$dir/passes"
expect '1 passed, 0 failed, 1 skipped' "$dir/skips"
expect '3 passed, 2 failed, 1 skipped' "$dir/passes" "$dir/skips" "$dir/crashes" "$dir/empty"
expect '1 passed, 1 failed' "$dir/fails"
CHECKS="$dir/plain $dir/rows $dir/absent" expect '8 passed, 0 failed, 3 skipped'
CHECKS="$dir/wrong $dir/broken" expect '6 passed, 2 failed'

# A machine without AVX-512: one skipped row per missing set and program that compares instruction sets.
fake evenkeel 0 <<<'scalar avx2'
cp "$dir/passes" "$dir/tests/ops/test_rows"
if [ "$(uname -m)" = x86_64 ]; then
  expect '1 passed, 0 failed, 4 skipped' "$dir/tests/ops/test_rows"
  fake evenkeel 0 <<<'scalar avx2 avx512'
  CPUINFO=/dev/null expect '1 passed, 0 failed, 3 skipped' "$dir/tests/ops/test_rows"
  expect '1 passed, 0 failed' "$dir/passes"
fi
if tools/check/run.sh "$dir" "$dir/fails" >/dev/null; then echo "run.sh says 0 after a failure"; bad=1; fi
exit $bad
