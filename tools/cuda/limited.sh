#!/usr/bin/env bash
# On a machine with a GPU: models on cards with less memory. What is more than that is held by an allocation, so the
# limit is real, and kernels are those of RTX 30 (sm_86: 99 KB of shared memory), which an H100 has with
# `make CUDA_ARCHS="90a 80on90"`. Usage: limited.sh BUILD_DIR [sm_86]. Exits 77 without a device.
set -u
build=${1:-build/release} features=${2:-sm_86} rc=0
device=$build/tests/cuda/device/device
"$device" "$features" read >/dev/null 2>&1
[ $? -eq 77 ] && { echo "no CUDA device"; exit 77; }
card() { # GiB of the card, what for, command...
  local room=$1 what=$2
  shift 2
  echo "== $room GiB: $what"
  EVENKEEL_FEATURES=$features timeout 120 "$device" "$features" hold "$room" "$build/evenkeel" "$@" || { echo "exit $?"; rc=1; }
}
bench() { # GiB, model, options...
  local room=$1 model=$2
  shift 2
  card "$room" "$model, prompt and reply of 32,768" bench --device "${on:-cuda:0}" --synthetic "$model" --bits 4 \
    --prompt 2048,32768 --batch 1 --depth 0,32000 --generate 16 --runs 1 "$@"
}
bench 8 e4b
card 8 "E4B against the CPU" selftest --device cuda:0 --synthetic e4b --layers 8
bench 24 26b
bench 24 31b
on=cuda:0,cpu bench 12 26b # experts that do not fit are the CPU's
# what does not fit is said before it is taken
echo "== 12 GiB: 31B is refused with the numbers"
if EVENKEEL_FEATURES=$features timeout 120 "$device" "$features" hold 12 "$build/evenkeel" bench --device cuda:0 --synthetic 31b --bits 4 --batch 1 --generate 4 --runs 1; then
  echo "it was not"
  rc=1
fi
exit $rc
