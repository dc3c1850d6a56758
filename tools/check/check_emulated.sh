#!/usr/bin/env bash
# Every CUDA kernel against the CPU's definition, bit for bit, on the emulated device (tests/emulate): no GPU is needed.
# One or two small cases of each family, or with TIER=all hundreds.
set -u
build=$(realpath "${1:-build/release}")
EK_EMULATED_TOGETHER=1 "$build/tests/cuda/device/device" emulated "$build/tests/emulate/libcuda.so.1" "$([ "${TIER:-all}" = all ] && echo quick || echo few)"
