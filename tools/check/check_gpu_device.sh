#!/usr/bin/env bash
# Models on a CUDA device against the CPU, with the scenes of tests/same, where there is a driver and a device.
set -u
"$1/tests/gpu/device/device" "${2:-30}"
