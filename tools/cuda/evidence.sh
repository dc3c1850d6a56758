#!/usr/bin/env bash
# On a machine with a GPU: all evidence for the CUDA backend in one command of under ten minutes, as a report.
# Usage: evidence.sh BUILD_DIR REPORT [--devices N | --features sm_80|sm_86|sm_89|sm_100|sm_120]; with --devices what several
# GPUs add, alone; with --features what those cards' kernels do here, alone. Needs nothing but what
# `make` and `make check-all-programs` built there: evenkeel, tests/cuda/device/device, tests/gpu/device/device,
# tests/gpu/test_tower. Exits 77 without a device, 1 where bits differ or a tool found a fault.
set -u
build=${1:-build/release} report=${2:-/dev/stdout}
rc=0
part() { # title, seconds, command...
  local title=$1 limit=$2 status
  shift 2
  echo "== $title"
  timeout "$limit" "$@" 2>&1 | grep -v '^evenkeel: \|^ok '
  status=${PIPESTATUS[0]}
  [ "$status" -eq 0 ] || { echo "exit $status"; rc=1; }
}
asked=()
[ "${3:-}" = --features ] && asked=("${4:?of which architecture, as sm_80}") # the program may have nothing else
"$build/tests/cuda/device/device" "${asked[@]}" read >/dev/null 2>&1
[ $? -eq 77 ] && { echo "no CUDA device"; exit 77; }

# A journal of four requests together on one device, replayed on several and on the CPU.
journals() { # how many devices
  local n=$1 last=$(($1 - 1)) port=18473 asked=() journal server up= by
  journal=$(mktemp)
  "$build/evenkeel" serve --model models/pocket --device cuda:0 --port $port --journal "$journal" --journal-prompts \
    >/dev/null 2>"$journal.err" &
  server=$!
  for _ in $(seq 60); do
    curl -sf "http://127.0.0.1:$port/health" >/dev/null && up=1 && break
    kill -0 $server 2>/dev/null || break
    sleep 0.5
  done
  if [ -z "$up" ]; then
    echo "== a journal of cuda:0: the server did not start: $(tail -n 1 "$journal.err" | cut -c1-300)"
    rc=1
    rm -f "$journal" "$journal.err"
    return
  fi
  for i in 1 2 3 4; do
    curl -sf "http://127.0.0.1:$port/v1/chat/completions" -H 'content-type: application/json' \
      -d "{\"messages\":[{\"role\":\"user\",\"content\":\"Count to $i.\"}],\"max_tokens\":64}" >/dev/null &
    asked+=($!)
  done
  wait "${asked[@]}"
  kill $server 2>/dev/null
  wait $server 2>/dev/null
  part "a journal of cuda:0, replayed on cpu" 120 "$build/evenkeel" replay "$journal" --model models/pocket --device cpu
  for by in layers outputs; do
    part "a journal of cuda:0, replayed on cuda:0-$last by $by" 120 "$build/evenkeel" replay "$journal" \
      --model models/pocket --device "cuda:0-$last" --split $by
  done
  [ "$n" -gt 2 ] && part "a journal of cuda:0, replayed on cuda:0,1 by outputs" 120 "$build/evenkeel" replay "$journal" \
    --model models/pocket --device cuda:0,1 --split outputs
  rm -f "$journal" "$journal.err"
}

# Bits over several devices, in splits that powers of two would hide; speed beside one device; a journal written on one
# and replayed on several and on the CPU; requests that come staggered.
several() { # how many
  local n=$1 last=$(($1 - 1)) model split by has room layers
  for model in e2b e4b 26b 31b; do
    for by in layers outputs; do
      part "requests against the CPU: $model's first layers, cuda:0-$last by $by" 120 "$build/evenkeel" selftest \
        --device "cuda:0-$last" --split $by --synthetic $model --layers 8
    done
  done
  # too little for all of these layers, enough for a step of a long prompt
  for model in "26b 5G 16 layers" "26b 5G 16 experts" "31b 8G 32 layers"; do
    read -r model room layers has <<<"$model"
    part "requests against the CPU: $model's first layers, $has on the CPU" 180 "$build/evenkeel" selftest \
      --device "cuda:0,cpu:$has" --gpu-memory "$room" --synthetic "$model" --layers "$layers"
  done
  for model in 26b 31b; do
    for by in layers outputs; do
      [ "$n" -gt 2 ] && part "requests against the CPU: $model's first layers, cuda:0-2 by $by" 120 "$build/evenkeel" \
        selftest --device cuda:0-2 --split $by --synthetic $model --layers 8
    done
  done
  journals "$n"
  for by in layers outputs; do # the bundled model, with its drafter
    EVENKEEL_DEVICE=cuda:0-$last EVENKEEL_SPLIT=$by part "tool calls that come staggered, cuda:0-$last by $by" 90 \
      python3 tests/e2e/staggered.py "$build/evenkeel" models/pocket
  done
  if command -v compute-sanitizer >/dev/null; then
    # By outputs it cannot run: it lets one kernel run at a time, and devices wait for each other's.
    part "compute-sanitizer memcheck, the bundled model on $n devices by layers" 300 compute-sanitizer --tool memcheck \
      --report-api-errors no --error-exitcode 9 "$build/evenkeel" generate --model models/pocket --device "cuda:0-$last" \
      --split layers --ids 2,5,9 --max-tokens 8
  fi
  for model in 31b 26b e4b; do
    for split in "cuda:0 layers" "cuda:0-$last layers" "cuda:0-$last outputs"; do
      part "speed of $model on $split" 120 "$build/evenkeel" bench --device "${split% *}" --split "${split#* }" \
        --synthetic $model --prompt 2048,8192 --chunk 2048 --batch 1,8,64 --generate 64 --runs 2 --json
    done
  done
}

# The kernels that another card would run: bits of each of them, of requests, and speed. They must be in the program
# (make CUDA_ARCHS="90a 80on90 100on90 120on90" on an H100); it, tests/cuda/device/device and models/pocket are all they need.
another() { # sm_80
  local as=$1 model
  part "kernels of $as against the CPU" 120 "$build/tests/cuda/device/device" "$as" bits
  part "requests against the CPU: the bundled model as $as" 90 env EVENKEEL_FEATURES="$as" "$build/evenkeel" selftest \
    --model models/pocket --device cuda
  for model in e2b e4b 26b 31b; do
    part "requests against the CPU: $model's first layers as $as" 90 env EVENKEEL_FEATURES="$as" "$build/evenkeel" \
      selftest --device cuda --synthetic $model --layers 6
  done
  part "what $as measures at its first start" 60 env EVENKEEL_FEATURES="$as" "$build/evenkeel" bench --device cuda --tune again --synthetic e2b \
    --layers 6 --batch 1 --generate 4 --runs 1
  for model in e2b e4b 26b 31b; do
    part "speed of $model as $as" 120 env EVENKEEL_FEATURES="$as" "$build/evenkeel" bench --device cuda --synthetic $model --prompt 2048,32768 \
      --chunk 2048 --batch 1,8,64 --generate 32 --runs 1 --json
    part "speed of $model as $as at depth" 120 env EVENKEEL_FEATURES="$as" "$build/evenkeel" bench --device cuda --synthetic $model \
      --batch 1 --depth 32768 --generate 32 --runs 1 --json
  done
  part "families of kernels of $as" 120 "$build/tests/cuda/device/device" "$as" choice
}

if [ "${3:-}" = --devices ] || [ "${3:-}" = --features ]; then
  {
    date -u
    case $3 in
    --devices) several "${4:?how many devices}" ;;
    --features) another "$4" ;;
    esac
    date -u
    [ $rc -eq 0 ] && echo "all passed" || echo "something failed"
  } >"$report"
  exit $rc
fi
{
  date -u
  part "kernels against the CPU" 180 "$build/tests/cuda/device/device" bits
  part "towers' kernels against the CPU" 90 "$build/tests/cuda/device/device" tower
  part "towers against the CPU" 90 "$build/tests/gpu/test_tower" device
  part "requests against the CPU: tiny models, alone" 90 "$build/tests/gpu/device/device" 38 0 alone
  part "requests against the CPU: tiny models, in company" 120 "$build/tests/gpu/device/device" 6
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      part "compute-sanitizer $tool, kernels" 300 compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 \
        "$build/tests/cuda/device/device" quick
    done
  fi
  for model in e2b e4b 26b 31b; do
    part "requests against the CPU: $model's first layers" 90 "$build/evenkeel" selftest --device cuda --synthetic $model --layers 6
  done
  for kv in i12 i8; do # attention in integers
    part "requests against the CPU: 31B's first layers, keys and values in $kv" 90 "$build/evenkeel" selftest --device cuda \
      --synthetic 31b --layers 6 --kv $kv
  done
  folder=$(mktemp -d)
  for type in q4_0 q4_k; do # GGUF: files made here, requests against the CPU, speed
    part "E2B's first layers as $type" 60 "$build/evenkeel" convert --synthetic e2b --layers 6 --type $type "$folder/$type.gguf"
    part "requests against the CPU: $type" 60 "$build/evenkeel" selftest --device cuda --model "$folder/$type.gguf"
    part "requests against the CPU: $type, keys 6, values 3, the first positions in bf16" 60 "$build/evenkeel" selftest \
      --device cuda --model "$folder/$type.gguf" --kv 6:3.64 --kv-start 256
    part "speed of $type" 60 "$build/evenkeel" bench --device cuda --model "$folder/$type.gguf" --prompt 2048 --chunk 2048 \
      --batch 1,8,64 --generate 32 --runs 2 --json
    rm -f "$folder/$type.gguf"
  done
  rm -rf "$folder"
  for model in e2b e4b 26b 31b; do
    part "speed of $model" 90 "$build/evenkeel" bench --device cuda --synthetic $model --prompt 2048 --chunk 2048 \
      --batch 1,8,64 --generate 64 --runs 3 --json
  done
  # towers: seconds of an image and of 30 s of sound, and until the first token of a question with one
  for model in e2b e4b 12b 26b 31b; do
    part "images of $model" 60 "$build/evenkeel" bench --device cuda:0 --synthetic $model --pictures 280,1120 --first-token --prompt 16 \
      --runs 3 --json
  done
  for model in e2b e4b 12b; do
    part "sounds of $model" 60 "$build/evenkeel" bench --device cuda:0 --synthetic $model --sounds 5,30 --first-token --prompt 16 --runs 3 --json
  done
  for model in e2b 31b; do
    part "images of $model, weights in 8 bits" 60 "$build/evenkeel" bench --device cuda:0 --synthetic $model --pictures 280 \
      --weights 8 --runs 3 --json
  done
  date -u
  [ $rc -eq 0 ] && echo "all passed" || echo "something failed"
} >"$report"
exit $rc
