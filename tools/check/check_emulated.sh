#!/usr/bin/env bash
# Every CUDA kernel against the CPU's definition, bit for bit, on the emulated device (tests/emulate): no GPU is needed.
set -u
build=$(realpath "${1:-build/release}")
EK_EMULATED_TOGETHER=1 "$build/tests/cuda/device/device" emulated "$build/tests/emulate/libcuda.so.1" quick
