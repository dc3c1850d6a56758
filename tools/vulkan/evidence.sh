#!/usr/bin/env bash
# On a machine with a Vulkan device: all evidence for it in one command of under ten minutes, as a report. Usage:
# evidence.sh BUILD_DIR REPORT_DIR [vulkan:N] [PART...]. Needs what `make CUDA=0 all build/release/tests/cuda/device/device`
# built, models/ and tests/e2e. REPORT_DIR/report.txt: every part with its last lines; beside it each part whole. Exits 77
# without a device, 1 where bits differ or a part did not end in time. Parts, of which all are run in this order:
#
#   start      a second start, --device auto where CUDA's devices are hidden; the first start, with its comparisons, is always there
#   logits     of the bundled model in every kind of keys and values
#   draws      sampled replies, drafted and not, and a drafter's tokens
#   several    a device beside the CPU, by layers and by experts; two devices where there are two
#   staggered  tool calls, alone and in company
#   journals   written here, replayed on CUDA and the CPU; written there, replayed here
#   requests   selftest of the bundled model and of the first layers of published ones
#   shaders    each against C
#   speed      of published models, six layers of each
#
# All parts but speed run beside each other if the machine has 12 processors and the device 60 GB.
#
# NVIDIA's driver without X: VK_DRIVER_FILES names a file like nvidia_icd.json with libEGL_nvidia.so.0 as library_path.
# shellcheck disable=SC2086,SC2317 # words without spaces; parts are called by their names
set -u
build=${1:-build/release} out=${2:?where the report goes: a folder} device=vulkan
shift 2
case ${1:-} in vulkan*) device=$1 && shift ;; esac
[ $# -gt 0 ] || set -- start logits draws several staggered journals requests shaders speed
mkdir -p "$out" || exit 2
report=$out/report.txt pocket=models/pocket
rc=0 n=0
export XDG_CACHE_HOME=$out/cache # the first start is one, whatever ran here before
rm -rf "$XDG_CACHE_HOME" "$out"/*.passed

part() { # title, seconds, command...
  local title=$1 limit=$2 status file
  shift 2
  n=$((n + 1)) file=$out/$group-$(printf '%02d' $n).txt
  local from=$SECONDS
  timeout "$limit" "$@" >"$file" 2>&1
  status=$?
  echo "== $title ($((SECONDS - from)) s)"
  grep '^FAIL' "$file" | head -n 5
  tail -n 4 "$file" | cut -c1-300
  [ $status -eq 0 ] || { echo "exit $status"; rc=1; }
}
# What follows is run by part, in a shell of its own.
same() { # name, command with its options...: prints the same on the CPU and on the device
  local name=$1 where
  shift
  for where in cpu "$device"; do
    "$build/evenkeel" "$@" --device "$where" >"$out/$name.${where%%:*}" 2>"$out/$name.said" || { cat "$out/$name.said"; return 1; }
  done
  [ -s "$out/$name.cpu" ] && cmp "$out/$name.cpu" "$out/$name.${device%%:*}" || return 1
  echo "$name: the same on both" && rm -f "$out/$name".*
}
same_logits() { # name, a device, options...: the CPU's logits
  local name=$1 there=$2
  shift 2
  "$build/evenkeel" logits --model $pocket --device cpu "$@" --ids $ids --out "$out/$name.cpu" || return 1
  for room in ${rooms:-all}; do # the least memory that the model can be run in
    [ "$room" = all ] || set -- "$@" --gpu-memory "$room"
    "$build/evenkeel" logits --model $pocket --device "$there" "$@" --ids $ids --out "$out/$name.there" && break
  done
  cmp "$out/$name.cpu" "$out/$name.there" && echo "$name on $there: the same bits" && rm -f "$out/$name".*
}
automatic() { # the device that auto takes where there is no CUDA device, and its bits
  CUDA_VISIBLE_DEVICES='' "$build/evenkeel" inspect $pocket 2>&1 | grep '^device'
  CUDA_VISIBLE_DEVICES='' "$build/evenkeel" generate --model $pocket --ids $ids --max-tokens 16 >"$out/auto" || return 1
  "$build/evenkeel" generate --model $pocket --device cpu --ids $ids --max-tokens 16 >"$out/auto.cpu" || return 1
  cmp "$out/auto" "$out/auto.cpu" && echo "auto: the CPU's tokens" && rm -f "$out"/auto*
}
staggered() { # right and alike in each company, and with the digests of the CPU
  for where in cpu "$device"; do
    EVENKEEL_DEVICE=$where python3 tests/e2e/staggered.py "$build/evenkeel" $pocket "" "$out/digests.${where%%:*}" || return 1
  done
  cmp "$out/digests.cpu" "$out/digests.${device%%:*}" && echo "digests: the CPU's"
}
journal() { # where it is written: eight requests together, half of them sampled
  local file=$out/journal.${1%%:*} server at asked=() up=
  rm -f "$file" "$out/port"
  "$build/evenkeel" serve --model $pocket --device "$1" --port 0 --port-file "$out/port" --journal "$file" --journal-prompts \
    >"$file.said" 2>&1 &
  server=$!
  for _ in $(seq 300); do
    [ -s "$out/port" ] && up=1 && break
    kill -0 $server 2>/dev/null || break
    sleep 0.2
  done
  [ -n "$up" ] || { tail -n 2 "$file.said"; kill $server; return 1; }
  at=http://127.0.0.1:$(cat "$out/port")/v1/chat/completions
  for i in 1 2 3 4 5 6 7 8; do
    curl -sf "$at" -H 'content-type: application/json' -o /dev/null \
      -d "{\"messages\":[{\"role\":\"user\",\"content\":\"Count to $i.\"}],\"max_tokens\":48,\"temperature\":$((i % 2)),\"seed\":$i}" &
    asked+=($!)
  done
  wait "${asked[@]}"
  kill $server && wait $server
  echo "$(wc -l <"$file") lines"
}
export -f same same_logits automatic staggered journal
export build out device pocket ids=2,17,9,100,40,60,7,21

run_start() {
  part "second start" 60 bash -c "time $build/evenkeel generate --model $pocket --device $device --ids $ids --max-tokens 8"
  part "--device auto" 60 bash -c automatic
}
run_logits() {
  local kv
  for kv in i12 i8 f16 bf16 8:4 6:3.64; do
    part "logits of the bundled model, $kv" 120 bash -c "same_logits pocket $device --kv $kv"
  done
}
run_draws() {
  local options
  for options in "" "--top-k 40 --min-p 0.02 --repetition-penalty 1.2" "--top-p 0.8 --draft off"; do
    part "a sampled reply: ${options:-all tokens}" 120 bash -c "same sampled generate --model $pocket --ids $ids --ignore-eos --max-tokens 64 \
      --temperature 1.1 --seed 7 $options"
  done
  part "a drafter's tokens" 60 bash -c "same drafts draft --model $pocket --drafter models/pocket-drafter --ids $ids --tokens 4"
}
run_several() {
  local first=${device#vulkan} model
  first=vulkan:${first#:} && [ "$first" != vulkan: ] || first=vulkan:0
  rooms=$(seq -s' ' -f %gM 20 3 80) part "logits, layers on the CPU" 120 bash -c "same_logits cpu $first,cpu --chunk 16"
  part "requests against the CPU: 26B-A4B's first layers, experts on the CPU" 240 "$build/evenkeel" selftest \
    --device "$first,cpu:experts" --gpu-memory 2G --synthetic 26b --layers 6
  [ $first != vulkan:0 ] || ! "$build/evenkeel" generate --device vulkan:1 --model $pocket --ids 2 --max-tokens 1 >/dev/null 2>&1 ||
    for model in e2b 26b 31b; do
      part "requests against the CPU: $model's first layers on two devices" 90 "$build/evenkeel" selftest \
        --device vulkan:0,1 --synthetic $model --layers 8
    done
}
run_staggered() {
  part "tool calls that come staggered" 120 bash -c staggered
}
run_journals() {
  local places="$device cpu" from to
  "$build/evenkeel" inspect --device cuda $pocket >/dev/null 2>&1 && places="$places cuda"
  for from in $places; do
    part "a journal of $from" 90 bash -c "journal $from"
    for to in $places; do
      [ "$from" != "$to" ] && { [ "$from" = "$device" ] || [ "$to" = "$device" ]; } &&
        part "a journal of $from, replayed on $to" 90 "$build/evenkeel" replay "$out/journal.${from%%:*}" --model $pocket --device "$to"
    done
  done
}
run_requests() {
  local model
  part "requests against the CPU: the bundled model" 90 "$build/evenkeel" selftest --device "$device" --model $pocket
  for model in "e2b 7" "26b 6" "31b 6"; do
    part "requests against the CPU: ${model% *}'s first ${model#* } layers" 90 "$build/evenkeel" selftest --device "$device" \
      --synthetic "${model% *}" --layers "${model#* }"
  done
}
run_shaders() {
  local section
  [ "${device%:0}" = vulkan ] || return 0 # the tests take the first device
  for section in math pass linear planes int kv sample; do
    part "shaders: $section" 90 "$build/tests/cuda/device/device" vulkan $section quick
  done
}
run_speed() {
  local model
  for model in e2b 26b 31b; do
    part "speed: $model, 6 layers" 60 "$build/evenkeel" bench --device "$device" --synthetic $model --layers 6 \
      --prompt 512 --batch 1,8 --runs 2
  done
}

in_company() { # runs a group with a share of processors and memory
  export EVENKEEL_THREADS=$((threads / 4)) EVENKEEL_GPU_MEMORY=$((free / 8))G
  "run_$group" >"$out/$group.report"
  [ $rc -ne 0 ] || touch "$out/$group.passed"
}

"$build/evenkeel" inspect --device "$device" $pocket >"$out/device.txt" 2>&1 || { cat "$out/device.txt"; exit 77; }
{
  grep '^device' "$out/device.txt"
  "$build/evenkeel" version
  date -u
  group=first
  part "first start" 300 bash -c "time $build/evenkeel generate --model $pocket --device $device --ids $ids --max-tokens 8"
  threads=$(nproc) free=$(sed -nE '/^device/s/.*, ([0-9]+)\.?[0-9]* of .* GB free.*/\1/p' "$out/device.txt")
  if [ "$threads" -ge 12 ] && [ "${free:-0}" -ge 60 ]; then
    for group; do
      [ "$group" = speed ] || in_company &
    done
    wait
    for group; do
      [ "$group" = speed ] || { cat "$out/$group.report" && [ -e "$out/$group.passed" ]; } || rc=1
    done
    case " $* " in *" speed "*) group=speed && run_speed ;; esac
  else
    for group; do "run_$group"; done
  fi
  date -u
  [ $rc -eq 0 ] && echo "all passed" || echo "something failed"
} >"$report"
echo "exit $rc: $report"
exit $rc
