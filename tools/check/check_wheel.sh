#!/usr/bin/env bash
# The wheel in a fresh virtual environment without a network, here and on Debian 11: it installs, has no file of this tree in
# use, and runs the package's tests, fifteen tool calls among them. Usage: check_wheel.sh BUILD_DIR
# tier: release
# runs: make
set -eu
cd "$(dirname "$0")/../.."
. /etc/os-release
[ "$(uname -m)" = x86_64 ] && [ "$VERSION_CODENAME" = bookworm ] || { echo "wheels are made on Debian 12 for x86_64: not run"; exit 77; }
python3 -c 'import ensurepip' 2>/dev/null || { echo "python3-venv is not installed: not run"; exit 77; }
command -v ip >/dev/null || { echo "iproute2 is not installed: not run"; exit 77; }
unshare -n ip link set lo up 2>/dev/null || { echo "no network can be taken away here: not run"; exit 77; }
. tools/dist/roots.sh
cuda=; [ -x /usr/local/cuda/bin/nvcc ] || command -v nvcc >/dev/null || cuda=CUDA=0
# shellcheck disable=SC2086 # no word, or one
make --no-print-directory B="$1" $cuda wheel >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; exit 1; }
wheel=$(echo build/dist/evenkeel-*-py3-none-manylinux_2_31_x86_64.whl)
first=$(sha256sum <"$wheel")
touch tools/dist/wheel.py && make --no-print-directory B="$1" $cuda -o build/dist/libevenkeel.so -o build/dist/evenkeel-decode "$wheel" >/dev/null
[ "$first" = "$(sha256sum <"$wheel")" ] || { echo "a second packing has other bytes"; exit 1; }
wheel=$(realpath "$wheel")

python3 -m venv "$dir/venv"
mkdir "$dir/tests" "$dir/docs" && cp -r tests/python tests/e2e "$dir/tests" && cp docs/pocket-curves.png docs/LIBRARY.md "$dir/docs"
unset EVENKEEL_LIBRARY PYTHONPATH
tree=$PWD; cd "$dir"
unshare -n "$dir/venv/bin/pip" install --no-index --quiet --disable-pip-version-check "$wheel"
# Loopback alone: a Hub of the test's own is there.
unshare -n sh -c 'ip link set lo up && exec "$1" tests/python/package.py ""' sh "$dir/venv/bin/python"
"$dir/venv/bin/pip" uninstall --yes --quiet evenkeel
left=$(find "$dir/venv" -path '*evenkeel*' | head -n 3)
[ -z "$left" ] || { echo "uninstalling leaves $left"; exit 1; }

[ "$(id -u)" -eq 0 ] && command -v debootstrap >/dev/null || { echo "no root or no debootstrap: not run on Debian 11"; exit 0; }
cd "$tree"
make_root bullseye bullseye-python python3,python3-venv || { tail -n 1 "$dir/log"; exit 1; }
cp -r "$wheel" "$dir/tests" "$dir/docs" "$root/try"
in_root "cd /try && python3 -m venv venv && venv/bin/pip install --no-index --quiet --disable-pip-version-check *.whl &&
  venv/bin/python tests/python/package.py \"\""
end_root
