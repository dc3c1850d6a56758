#!/usr/bin/env bash
# Every CUDA kernel against the CPU's scalar definition, where there is a driver and a device.
set -u
"$1/tests/cuda/device/device" bits
