#!/usr/bin/env bash
# libevenkeel and the Python package on a device, with the CPU's bits: 64 requests in random order with cancels from four threads,
# sounds and pictures, and on a card also the fifteen tool calls, alone, at once and staggered.
# Usage: check_library_device.sh BUILD_DIR: on the emulated device; check_library_device.sh DIR cuda: on a card, with DIR from an
# archive of tools/carry.sh; Python 3.8 is needed there, nothing else.
# tier: all
# runs: make
set -eu
cd "$(dirname "$0")/../.."
build=$(realpath "$1") device=${2:-cuda} lib=$build bin=$build/tests/capi/installed model=models/pocket calls=(models/pocket)
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
case $build in *san) echo "the thread sanitizer's build has check_library: not run"; exit 77 ;; esac
libraries=
if [ -e "$build/bin/libevenkeel.so.0" ]; then # carried
  lib=$build/bin bin=$lib libraries=$build/lib:
else
  make --no-print-directory B="$build" lib "$bin/many" "$bin/bodies" >/dev/null
fi
libraries+=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ $# -lt 2 ]; then # a step takes a thousand times as long there
  [ -e "$build/tests/emulate/libcuda.so.1" ] || make --no-print-directory B="$build" "$build/tests/emulate/libcuda.so.1" >/dev/null
  LD_LIBRARY_PATH=$build/tests/emulate "$build/evenkeel" inspect --device cuda models/pocket 2>&1 >/dev/null | grep -q 'without CUDA kernels' &&
    { echo "a build without CUDA kernels: not run"; exit 77; }
  dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
  PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/tiny_model.py "$dir"
  libraries=$libraries:$build/tests/emulate model=$dir calls=()
fi
export PYTHONDONTWRITEBYTECODE=1 EVENKEEL_LIBRARY=$lib/libevenkeel.so.0 PYTHONPATH=$PWD/python
LD_LIBRARY_PATH=$libraries python3 tests/e2e/library.py "$build/evenkeel" "$model" "$bin/many" --bodies "$bin/bodies" --device "$device"
LD_LIBRARY_PATH=$libraries python3 tests/python/device.py "$device" "${calls[@]}"
