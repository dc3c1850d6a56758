#!/usr/bin/env bash
# Runs test programs and check scripts, prints what failed, and closes with one line:
# `N passed, N failed`, and `, N skipped` if anything was left out.
#
#   run.sh BUILD_DIR PROGRAM...      CHECKS="SCRIPT..." replaces tools/check/check_*.sh; CHECKS= runs none
#
# A test program uses cmocka: every test of it counts once, skip() counts as skipped. A check script counts once,
# or as often as its last line says (`N passed, N failed[, N skipped]`); exit 77 means that it did not run, and its
# last line says why. Kernels of an instruction set that this machine lacks are not tested: each program that
# would compare them counts one skipped row per missing set.
#
# TIER=check leaves out what tiers.sh names; TIER=all (without TIER) runs everything.
#
# Test programs compute, scripts wait for servers, browsers and clients most of the time. So as many programs run at once as
# there are processors, at a lower priority, and beside them as many scripts and one more: a script that wakes up has a
# processor at once, and while all wait the programs have both. `make check` runs as many of both as there are processors;
# at most 8 and 8. JOBS=N: N of both; JOBS=1: one after the other. The longest first, by the times of the last run, which
# BUILD_DIR/times keeps (of a machine where nothing ran yet: tools/check/times). Behind the others those run together that have
# deadlines and mostly wait (`quiet`), then what measures time, alone; what calls make or listens on a documented port has a
# chain, in which one follows the other. Behind the seconds of each stand those of processors.
set -u
build=$1; shift
passed=0; failed=0; skipped=0
jobs=${JOBS:-$(nproc)}
[ "$jobs" -le 8 ] || jobs=8
scripts=$jobs programs=$jobs # most of each
if [ -z "${JOBS:-}" ] && [ "${TIER:-all}" = all ]; then
  scripts=$((scripts + 1))
  case $build in *san) jobs=$scripts ;; *) jobs=$((scripts + programs)) ;; esac # a sanitizer needs much memory
fi
. "$(dirname "$0")/tiers.sh"
export TIER=${TIER:-all}
dir=$(mktemp -d); trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT

count_program() { # exit status, program
  local ok bad left_out # cmocka names a test that failed or was skipped twice: as it runs, and in a list at the end
  ok=$(grep -cE '^\[       OK \]' "$log")
  bad=$(grep -E '^\[  FAILED  \] [a-zA-Z_0-9]+$' "$log" | sort -u | wc -l)
  left_out=$(grep -E '^\[  SKIPPED \] [a-zA-Z_0-9]+$' "$log" | sort -u | wc -l)
  if [ "$1" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  if [ "$1" -eq 0 ] && [ $((ok + left_out)) -eq 0 ]; then bad=1; echo "FAIL $2 ran no test"; fi
  passed=$((passed + ok)); failed=$((failed + bad)); skipped=$((skipped + left_out))
  if [ "$1" -ne 0 ]; then echo "FAIL $2 (exit $1)"; tail -n 40 "$log"; fi
  grep -E '^measured: ' "$log"
}

count_check() { # exit status, script, its seconds in words
  local rows='^([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$' last
  last=$(tail -n 1 "$log")
  if [ "$1" -eq 77 ]; then
    skipped=$((skipped + 1)); echo "skipped $2: $last"
  elif [[ $last =~ $rows ]] && { [ "$1" -eq 0 ] || [ "${BASH_REMATCH[2]}" -gt 0 ]; }; then
    passed=$((passed + BASH_REMATCH[1])); failed=$((failed + BASH_REMATCH[2])); skipped=$((skipped + ${BASH_REMATCH[4]:-0}))
    if [ "$1" -ne 0 ]; then echo "FAIL $2"; cat "$log"; else echo "ran $2 ($3): $last"; grep -E '^skipped ' "$log"; fi
  elif [ "$1" -eq 0 ]; then
    passed=$((passed + 1)); echo "ran $2 ($3)"
  else
    failed=$((failed + 1)); echo "FAIL $2"; cat "$log"
  fi
}

# Which instruction sets the programs covered, and a skipped row for each program and set that they did not.
count_isas() {
  local have known="scalar" isa t source programs=0
  [ -x "$build/evenkeel" ] || return
  have=$("$build/evenkeel" version --isas) || return
  if [ "$(uname -m)" = x86_64 ]; then known="scalar avx2 avxvnni avx512 avx512_bf16 amx"; fi
  if [ "$(uname -m)" = aarch64 ]; then known="scalar dotprod i8mm"; fi
  if grep -qsw avx512_bf16 "${CPUINFO:-/proc/cpuinfo}" && [[ " $have " == *" avx512 "* ]]; then have="$have avx512_bf16"; fi
  echo "instruction sets covered: $have"
  for t in "$@"; do
    source=${t#"$build"/}.c
    if grep -qsE 'CHECK_ISAS|ek_cpu_isas|EK_CPU_AVX' "$source" "${source%/*}/cases.c"; then programs=$((programs + 1)); fi
  done
  for isa in $known; do
    if [[ " $have " == *" $isa "* ]] || [ "$programs" -eq 0 ]; then continue; fi
    echo "skipped $isa in $programs test programs: this machine does not have it"
    skipped=$((skipped + programs))
  done
}

run_item() { # number
  local start=$SECONDS status took TIMEFORMAT='%U %S'
  { time if [ "${kind[$1]}" = script ]; then (short "${item[$1]}"; threads "$name_of"; exec "${item[$1]}" "$build"); else tunables "${item[$1]}"; GLIBC_TUNABLES=$tuned nice -n "${2:-0}" "${item[$1]}"; fi >"$dir/$1.log" 2>&1 </dev/null; } 2>"$dir/$1.cpu"
  status=$?
  took=$(awk '{s = $1 + $2} END {printf "%.0f", s}' "$dir/$1.cpu")
  short "${item[$1]}"
  echo "$((SECONDS - start)) $name_of $took" >"$dir/$1.time"
  echo "$status $((SECONDS - start)) $took" >"$dir/$1.new" && mv "$dir/$1.new" "$dir/$1.rc"
}

count_ended() { # those that ended and are not counted yet, in their order
  local i status seconds took
  for i in "${!item[@]}"; do
    [ -e "$dir/$i.rc" ] || continue
    read -r status seconds took <"$dir/$i.rc"
    log=$dir/$i.log
    if [ "${kind[$i]}" = script ]; then
      count_check "$status" "${item[$i]}" "$seconds s, $took of a processor"
    else
      echo "ran ${item[$i]#"$build"/} ($seconds s, $took of a processor)"
      count_program "$status" "${item[$i]}"
    fi
    rm -f "$dir/$i.rc" "$log"
  done
}

# Items: a script or a program each, the longest first.
short() { name_of=${1#"$build"/} name_of=${name_of#tools/check/}; } # no subshells here: a fork takes milliseconds
by_time() { # kinds and names on standard input; what no table knows counts as 5 seconds
  awk 'FNR == 1 { table++ }
    table <= n { if (!/^#/) seconds[$2] = $1; next }
    { name = $2; sub("^" build "/", "", name); sub("^tools/check/", "", name); print (name in seconds ? seconds[name] : 5) "\t" $0 }' \
    n="$1" build="$build" "${@:2}" - | sort -s -t "$(printf '\t')" -k 1,1nr | cut -f 2-
}
offer() { # kind, names
  local name
  for name in "${@:2}"; do short "$name"; [ -e "$name" ] && in_tier "$name_of" && echo "$1 $name"; done
}
tables=(); for t in tools/check/times "$build/times"; do [ -s "$t" ] && tables+=("$t"); done
{ offer script ${CHECKS-tools/check/check_*.sh}; offer program "$@"; } | by_time ${#tables[@]} ${tables[@]+"${tables[@]}"} >"$dir/order"
item=() kind=() rest=() quiet=() last=() first_chain=() second_chain=()
while read -r what name; do
  i=${#item[@]}
  item+=("$name") kind+=("$what")
  short "$name"; chain_of "$name_of"
  case $chain in
    quiet) quiet+=("$i") ;; alone) last+=("$i") ;; ports) first_chain+=("$i") ;; make) second_chain+=("$i") ;; *) rest+=("$i") ;;
  esac
done <"$dir/order"
declare -A running=([script]=0 [program]=0)
start() { # numbers, one after the other, as one job
  local what=${kind[$1]}
  { for i in "$@"; do run_item "$i" 5; done; echo "$what" >"$dir/$1.new" && mv "$dir/$1.new" "$dir/$1.end"; } &
  running[$what]=$((running[$what] + 1))
}
wait_for_one() {
  local file what
  wait -n
  [ $? -ne 127 ] || running=([script]=0 [program]=0) # none is left, whatever they wrote
  for file in "$dir"/*.end; do
    [ -e "$file" ] || continue
    read -r what <"$file"
    rm -f "$file"
    running[$what]=$((running[$what] - 1))
  done
  count_ended
}
script=() program=() # what has not begun: numbers of a job each
[ ${#first_chain[@]} -eq 0 ] || script+=("${first_chain[*]}")
[ ${#second_chain[@]} -eq 0 ] || script+=("${second_chain[*]}")
for i in ${rest[@]+"${rest[@]}"}; do
  if [ "${kind[$i]}" = script ]; then script+=("$i"); else program+=("$i"); fi
done
s=0 p=0
while [ $s -lt ${#script[@]} ] || [ $p -lt ${#program[@]} ]; do
  any=$((running[script] + running[program] < jobs))
  may_script=$((any && s < ${#script[@]} && running[script] < scripts))
  may_program=$((any && p < ${#program[@]} && running[program] < programs))
  if [ $may_script = 1 ] && { [ $may_program = 0 ] || [ "${script[$s]%% *}" -lt "${program[$p]}" ] || [[ ${script[$s]} = *\ * ]]; }; then
    start ${script[$s]} # a chain's numbers are words
    s=$((s + 1))
  elif [ $may_program = 1 ]; then
    start "${program[$p]}"
    p=$((p + 1))
  else wait_for_one; fi
done
wait
count_ended
for i in ${quiet[@]+"${quiet[@]}"}; do
  [ "$jobs" -gt 1 ] || { run_item "$i"; continue; }
  run_item "$i" &
done
wait
count_ended
for i in ${last[@]+"${last[@]}"}; do run_item "$i"; count_ended; done
if cat "$dir"/*.time >"$dir/times" 2>/dev/null && [ -d "$build" ]; then # and of others what was known
  [ ! -s "$build/times" ] || awk 'NR == FNR { seen[$2] = 1; print; next } !($2 in seen)' "$dir/times" "$build/times" >"$dir/all"
  mv "$dir/$([ -s "$dir/all" ] && echo all || echo times)" "$build/times"
fi
count_isas "$@"
if [ "$skipped" -gt 0 ]; then echo "$passed passed, $failed failed, $skipped skipped"; else echo "$passed passed, $failed failed"; fi
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
