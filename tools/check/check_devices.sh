#!/usr/bin/env bash
# The whole program over several devices, and over devices and the CPU: devices made of a CPU (tests/emulate), so that no
# GPU is needed. What it answers is what the CPU does, byte by byte. Usage: check_devices.sh BUILD_DIR
# tier: all
set -u
build=$(realpath "${1:-build/release}")
program=$build/evenkeel ids=2,105,2364,107,9,33,71,106
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
count() { # status, what
  if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAIL $2"
  fi
}
run() { LD_LIBRARY_PATH="$build/tests/emulate" "$program" "$@"; }

run inspect --device cuda models/pocket >/dev/null 2>"$dir/why" || { # a build without nvcc has no kernels to ask for
  cat "$dir/why"
  grep -q 'without CUDA kernels' "$dir/why" && exit 77
  exit 1
}
run logits --device cpu --ids $ids --out "$dir/want" >/dev/null || exit 1
run generate --device cpu --ids $ids --max-tokens 6 >"$dir/text" || exit 1
# with the fourth all layers fit: tests/gpu has the CPU's
for split in cuda:1 cuda:0,1 "cuda:0-2 --split layers" cuda:0,cpu "cuda:0,1 --split outputs" "cuda:0-2 --split outputs"; do
  # shellcheck disable=SC2086 # options
  run logits --device $split --ids $ids --out "$dir/got" >/dev/null && cmp "$dir/want" "$dir/got"
  count $? "logits on $split"
  # shellcheck disable=SC2086
  run generate --device $split --ids $ids --max-tokens 6 >"$dir/other" && cmp "$dir/text" "$dir/other"
  count $? "generate on $split"
done

said() { # what, a pattern, options
  local what=$1 pattern=$2
  shift 2
  run "$@" >"$dir/said" 2>&1
  grep -q "$pattern" "$dir/said"
  count $? "$what: $(head -3 "$dir/said")"
}
said "where layers lie" '^layers *0 to [0-9]* on cuda:0 .*and the head on cuda:1' inspect --device cuda:0,1 models/pocket
said "where they would" '^layers *0 to [0-9]* on the CPU, .*and the head on cuda:0' inspect --synthetic 31b --device cuda:0,cpu --gpu-memory 12G
said "whose outputs" '^outputs *cut over cuda:0 and cuda:1 ' inspect --device cuda:0,1 --split outputs models/pocket
said "outputs and the CPU" 'split outputs: cpu has whole layers' generate --device cuda:0,cpu --split outputs --ids $ids
said "no such device" 'there is no device cuda:7, the driver has 4' generate --device cuda:0,7 --ids $ids
starts() { # what, a pattern, options: the first lines of a server
  local what=$1 pattern=$2
  shift 2
  LD_LIBRARY_PATH="$build/tests/emulate" "$program" serve --host 127.0.0.1 --port 0 "$@" >"$dir/said" 2>&1 & # its own pid
  local pid=$!
  for _ in $(seq 300); do
    grep -q ' serves ' "$dir/said" && break
    kill -0 $pid 2>/dev/null || break
    sleep 0.1
  done
  sleep 0.2
  kill $pid 2>/dev/null
  wait $pid 2>/dev/null
  grep -q "$pattern" "$dir/said"
  count $? "$what: $(head -3 "$dir/said")"
}
starts "as many requests as keys fit" '^up to 128 requests run at once' --device cuda:1 --ctx 1024
grep -q '^a step reads up to 2048 prompt tokens' "$dir/said"
count $? "long steps of a small model: $(head -3 "$dir/said")"
starts "or fewer" '^up to 16 requests run at once' --device cuda:1 --ctx 1024 --kv-memory 20M
said "no room" 'the weights need .* GB; on each of 2 devices a step .*; cuda:0 and cuda:1 have room for .* GB each' \
  generate --device cuda:0,1 --gpu-memory 2M --ids $ids
for memory in 8M 20M; do # what inspect says is what a start does, before it reads
  for device in cuda:0 cuda:0,1; do
    run inspect --device $device --gpu-memory $memory models/pocket >"$dir/plan"
    run serve --port 0 --verbose --draft ngram --device $device --gpu-memory $memory >"$dir/started" 2>&1
    why=$(sed -n 's/^layers *no: //p' "$dir/plan")
    [ "$why" ] && grep -qF "$why" "$dir/started" && ! grep -q 'in memory' "$dir/started"
    count $? "$memory on $device: $(cat "$dir/plan" "$dir/started")"
    run generate --verbose --device $device --gpu-memory $memory --ids $ids >"$dir/started" 2>&1
    grep -q ', a drafter .*; cuda:0 ' "$dir/started" && ! grep -q 'in memory' "$dir/started"
    count $? "$memory on $device with a drafter: $(cat "$dir/started")"
  done
done
# served: requests of every kind, and pages on disk that one device and two find of each other
LD_LIBRARY_PATH="$build/tests/emulate" PYTHONDONTWRITEBYTECODE=1 \
  python3 tests/e2e/ranks.py "$program" "$dir/model" "cuda:0,1 --split outputs" >"$dir/served" 2>&1
served=$?
read -r more _ wrong _ < <(tail -1 "$dir/served")
grep -v ' passed, ' "$dir/served"
case "$more,$wrong" in *[!0-9,]* | ,* | *,) more=0 wrong=1 ;; esac # it ended early
passed=$((passed + more)) failed=$((failed + wrong))
[ "$served" -eq 0 ] || [ "$wrong" -gt 0 ] || failed=$((failed + 1))
echo "$passed passed, $failed failed"
exit $((failed > 0))
