#!/usr/bin/env bash
# The Python package over this build's libevenkeel. Usage: check_python.sh BUILD_DIR
# tier: all
# runs: make
set -eu
cd "$(dirname "$0")/../.."
build=$1
case $build in *san) echo "Python is not built with the sanitizer: not run"; exit 77 ;; esac
[ -e models/pocket/config.json ] || { echo "no models/pocket: not run"; exit 77; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' || { echo "Python is older than 3.8: not run"; exit 77; }
make --no-print-directory B="$build" lib "$build/evenkeel" >/dev/null
export EVENKEEL_LIBRARY=$PWD/$build/libevenkeel.so PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1
python3 tests/python/package.py models/pocket "${CC:-cc}" include "$build/evenkeel"
said=$(EVENKEEL_LIBRARY=/nowhere.so python3 -c 'import evenkeel' 2>&1 | tail -n 1)
[[ $said == "ImportError: evenkeel: /nowhere.so cannot be used: "* ]] || { echo "without a library: $said"; exit 1; }
