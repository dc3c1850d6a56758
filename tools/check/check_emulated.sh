#!/usr/bin/env bash
# Every CUDA kernel against the CPU's definition, bit for bit, on the emulated device (tests/emulate): no GPU is needed.
# TIER=check: one or two small cases of each family; else hundreds, and the few on an older device too, which copies by
# warps and has neither wgmma nor clusters. `check_emulated.sh BUILD 80`: all hundreds on that.
set -u
build=$(realpath "${1:-build/release}")
device=$build/tests/cuda/device/device library=$build/tests/emulate/libcuda.so.1
export EK_EMULATED_TOGETHER=1
if [ -n "${2-}" ]; then
  EK_EMULATED_CAPABILITY=$2 exec "$device" emulated "$library" quick
fi
if [ "${TIER:-all}" = check ]; then
  exec "$device" emulated "$library" few
fi
EK_EMULATED_CAPABILITY=80 "$device" emulated "$library" few || exit
"$device" emulated "$library" quick
