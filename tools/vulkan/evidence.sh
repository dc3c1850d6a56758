#!/usr/bin/env bash
# On a machine with a Vulkan device: all evidence for it in one command of under eight minutes, as a report. Usage:
# evidence.sh BUILD_DIR REPORT_DIR [vulkan:N]. Needs what `make CUDA=0 all build/release/tests/cuda/device/device` built.
# REPORT_DIR/report.txt: every part with its last lines; beside it each part whole. Exits 77 without a device, 1 where bits
# differ or a part did not end in time.
#
# NVIDIA's driver without X: VK_DRIVER_FILES names a file like nvidia_icd.json with libEGL_nvidia.so.0 as library_path.
set -u
build=${1:-build/release} out=${2:?where the report goes: a folder} device=${3:-vulkan}
mkdir -p "$out" || exit 2
report=$out/report.txt
rc=0 n=0
part() { # title, seconds, command...
  local title=$1 limit=$2 status file
  shift 2
  n=$((n + 1)) file=$out/$(printf '%02d' $n).txt
  local from=$SECONDS
  timeout "$limit" "$@" >"$file" 2>&1
  status=$?
  echo "== $title ($((SECONDS - from)) s)"
  grep '^FAIL' "$file" | head -n 5
  tail -n 4 "$file"
  [ $status -eq 0 ] || { echo "exit $status"; rc=1; }
}
# shellcheck disable=SC2317 # part runs it by bash -c
same_logits() { # name, options of a model...
  local name=$1
  shift
  for where in cpu "$device"; do
    "$build/evenkeel" logits "$@" --device "$where" --ids 2,17,9,100,40,60,7,21 --out "$out/$name.${where%%:*}" || return 1
  done
  cmp "$out/$name.cpu" "$out/$name.${device%%:*}" && echo "$name: the same bits" && rm -f "$out/$name".*
}
export -f same_logits
export build out device

"$build/evenkeel" inspect --device "$device" models/pocket >"$out/device.txt" 2>&1 || { cat "$out/device.txt"; exit 77; }
{
  grep -i 'vulkan\|device' "$out/device.txt" | head -n 3
  "$build/evenkeel" version
  date -u
  for kv in i12 f16 8:4; do
    part "logits of the bundled model, $kv" 60 bash -c "same_logits pocket --model models/pocket --kv $kv"
  done
  if [ "$device" = vulkan ]; then # the tests take the first device
    for section in math pass linear planes int kv sample; do
      part "shaders: $section" 90 "$build/tests/cuda/device/device" vulkan $section quick
    done
  fi
  part "requests against the CPU: the bundled model" 90 "$build/evenkeel" selftest --device "$device" --model models/pocket
  part "requests against the CPU: E2B's first layers" 90 "$build/evenkeel" selftest --device "$device" --synthetic e2b --layers 7
  for model in e2b 26b; do
    part "speed: $model, 6 layers" 60 "$build/evenkeel" bench --device "$device" --synthetic $model --layers 6 \
      --prompt 512 --batch 1,8 --runs 2
  done
} >"$report"
echo "exit $rc: $report"
exit $rc
