#!/usr/bin/env bash
# run.sh counts what passed, failed and was left out; nothing that did not run counts as passed. It starts the longest
# first, leaves out what the tier leaves out, and quick.py finds the tests of what changed. Usage: check_run.sh BUILD_DIR
# tier: all
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
# The order and the tiers.
export TIER=all
order() { JOBS=1 tools/check/run.sh "$dir" "$@" | sed -n 's/^ran \([^ ]*\) .*/\1/p' | tr '\n' ' '; }
mkdir -p "$dir/tests/lib" "$dir/tests/base" "$dir/tests/serve"
for name in fast slow unknown tests/lib/test_calls tests/base/test_base tests/serve/test_prepare; do cp "$dir/passes" "$dir/$name"; done
printf '9 slow\n1 fast\n50 tests/base/test_base\n99 tests/serve/test_prepare\n' >"$dir/times"
got=$(order "$dir/tests/serve/test_prepare" "$dir/tests/base/test_base" "$dir/fast" "$dir/unknown" "$dir/slow")
[ "$got" = 'slow unknown fast tests/base/test_base tests/serve/test_prepare ' ] ||
  { echo "the order is $got: not the longest first, then what is quiet, what measures time last"; bad=1; }
grep -q '^9 slow$' "$dir/times" && { echo "the times of this run are not kept"; bad=1; }
[ "$(TIER=check order "$dir/tests/lib/test_calls" "$dir/fast")" = 'fast ' ] || { echo "make check runs what is for make check-all"; bad=1; }
expect '2 passed, 0 failed' "$dir/tests/lib/test_calls" "$dir/fast"

# What is quiet runs together, behind the others: each of these two ends when the other has begun.
for name in serve/test_server serve/test_http; do
  printf '#!/usr/bin/env bash\n>"%s/began.$$"\nfor i in {1..100}; do set -- "%s"/began.*; [ $# -lt 2 ] || break; sleep 0.1; done\n%s\n' \
    "$dir" "$dir" '[ $# -ge 2 ] && [ -e "'"$dir"'/first" ] && echo "[       OK ] a"' >"$dir/tests/$name"
  chmod +x "$dir/tests/$name"
done
printf '#!/usr/bin/env bash\nsleep 0.5; [ -e "%s"/began.* ] || >"%s/first"; echo "[       OK ] a"\n' "$dir" "$dir" >"$dir/fast"
JOBS=2 expect '3 passed, 0 failed' "$dir/tests/serve/test_server" "$dir/tests/serve/test_http" "$dir/fast"

# Tests of what changed: of a source of operators, of a header that nearly all include, of nothing.
python3 - "${1:-build/release}" <<'END' || bad=1
import glob, os, sys
sys.path.insert(0, "tools/check")
sys.dont_write_bytecode = True
import quick
source = glob.glob("src/ops/**/rows.c", recursive=True)[0]
fit, left = quick.choose([source])
bad = [f"no test of {source} among {fit}"] if "tests/ops/test_rows" not in fit else []
took = quick.times()
for change in (source, glob.glob("src/base/**/err.h", recursive=True)[0]):
    fit, left = quick.choose([change])
    cost = sum(took.get(t, 1) + quick.FOR_BUILDING for t in fit)
    bad += [f"{change}: tests of {cost} seconds"] * (not fit or cost > quick.SECONDS * quick.JOBS)
if bad: print("\n".join(bad))
sys.exit(bool(bad))
END
if tools/check/run.sh "$dir" "$dir/fails" >/dev/null; then echo "run.sh says 0 after a failure"; bad=1; fi
exit $bad
