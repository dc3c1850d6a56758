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
# As many run at once as there are processors, up to 8 (JOBS=1: one after the other); what measures time runs alone, behind
# the others, and what calls make or listens on a documented port runs one after the other.
set -u
build=$1; shift
passed=0; failed=0; skipped=0
jobs=${JOBS:-$(nproc)}; [ "$jobs" -le 8 ] || jobs=8
alone=" test_base test_http test_server test_prepare check_load.sh check_hostile.sh check_hub.sh "
in_turn=" check_docs.sh check_lib.sh check_install.sh check_deploy.sh "
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

count_check() { # exit status, script, seconds
  local rows='^([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$' last
  last=$(tail -n 1 "$log")
  if [ "$1" -eq 77 ]; then
    skipped=$((skipped + 1)); echo "skipped $2: $last"
  elif [[ $last =~ $rows ]] && { [ "$1" -eq 0 ] || [ "${BASH_REMATCH[2]}" -gt 0 ]; }; then
    passed=$((passed + BASH_REMATCH[1])); failed=$((failed + BASH_REMATCH[2])); skipped=$((skipped + ${BASH_REMATCH[4]:-0}))
    if [ "$1" -ne 0 ]; then echo "FAIL $2"; cat "$log"; else echo "ran $2 ($3 s): $last"; grep -E '^skipped ' "$log"; fi
  elif [ "$1" -eq 0 ]; then
    passed=$((passed + 1)); echo "ran $2 ($3 s)"
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
  local start=$SECONDS status
  if [ "${kind[$1]}" = script ]; then "${item[$1]}" "$build"; else "${item[$1]}"; fi >"$dir/$1.log" 2>&1 </dev/null
  status=$?
  echo "$status $((SECONDS - start))" >"$dir/$1.new" && mv "$dir/$1.new" "$dir/$1.rc"
}

count_ended() { # those that ended and are not counted yet, in their order
  local i status seconds
  for i in "${!item[@]}"; do
    [ -e "$dir/$i.rc" ] || continue
    read -r status seconds <"$dir/$i.rc"
    log=$dir/$i.log
    if [ "${kind[$i]}" = script ]; then
      count_check "$status" "${item[$i]}" "$seconds"
    else
      echo "ran ${item[$i]#"$build"/} ($seconds s)"
      count_program "$status" "${item[$i]}"
    fi
    rm -f "$dir/$i.rc" "$log"
  done
}

item=() kind=() turns=() last=() rest=()
for s in ${CHECKS-tools/check/check_*.sh}; do [ -e "$s" ] && item+=("$s") kind+=(script); done
for t in "$@"; do item+=("$t") kind+=(program); done
for i in "${!item[@]}"; do
  case "$alone" in *" ${item[$i]##*/} "*) last+=("$i"); continue ;; esac
  case "$in_turn" in *" ${item[$i]##*/} "*) turns+=("$i") ;; *) rest+=("$i") ;; esac
done
running=0
[ ${#turns[@]} -gt 0 ] && { { for i in "${turns[@]}"; do run_item "$i"; done; } & running=1; }
for i in ${rest[@]+"${rest[@]}"}; do
  while [ "$running" -ge "$jobs" ]; do wait -n; running=$((running - 1)); count_ended; done
  run_item "$i" &
  running=$((running + 1))
done
wait
count_ended
for i in ${last[@]+"${last[@]}"}; do run_item "$i"; count_ended; done
count_isas "$@"
if [ "$skipped" -gt 0 ]; then echo "$passed passed, $failed failed, $skipped skipped"; else echo "$passed passed, $failed failed"; fi
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
