#!/usr/bin/env bash
# The operators' tests on 64-bit Arm: cross-compiled, run by qemu's user mode with SDOT and SMMLA. Prints a line that
# begins with "skipped" where the cross compiler, qemu or cmocka for arm64 is missing and cannot be had.
# Usage: check_arm.sh [TEST...]; without names those of the operators.
set -u
cd "$(dirname "$0")/.." || exit
build=build/aarch64
tests=${*:-test_linear_pack test_linear test_linear_shapes test_decoded test_rows test_tree test_weight_type test_attn_ways}

for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
  command -v $tool >/dev/null && continue
  echo "skipped: no $tool (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)"
  exit 77
done

# cmocka for arm64, unpacked beside the build: the machine's own packages stay as they are.
root=$PWD/$build/root
if [ ! -e "$root/usr/lib/aarch64-linux-gnu/libcmocka.so.0" ]; then
  mkdir -p "$root" "$build/apt/partial"
  apt="apt-get -qq -oAPT::Architecture=arm64 -oAPT::Architectures=arm64 -oDir::State::Lists=$PWD/$build/apt
       -oDir::Cache::pkgcache= -oDir::Cache::srcpkgcache= -oAPT::Sandbox::User="
  (cd "$root" && $apt update && $apt download libcmocka0 libcmocka-dev && for f in *.deb; do dpkg -x "$f" .; done) || {
    echo "skipped: cmocka for arm64 cannot be fetched"
    exit 77
  }
fi

programs=()
for t in $tests; do programs+=("$build/tests/ops/$t"); done
objects=("${programs[@]/%/.o}")
cross() {
  make --no-print-directory -j"$(nproc)" ARCH=aarch64 CUDA=0 NO_DECODER=1 CC="${CCACHE:-} aarch64-linux-gnu-gcc" AR=aarch64-linux-gnu-ar B=$build WERROR=-Werror \
    PKG_CFLAGS="-I$root/usr/include" PKG_LIBS= TEST_LIBS="-L$root/usr/lib/aarch64-linux-gnu -lcmocka -lrt" "$@"
}
# gcc 12 for arm64 fails inside where it vectorises loops of some tests.
cross CFLAGS="-g -fno-tree-vectorize" "${objects[@]}" || exit
cross "${programs[@]}" || exit

failed=0
for p in "${programs[@]}"; do
  if qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$root/usr/lib/aarch64-linux-gnu" "$p" >"$build/log" 2>&1; then
    echo "passed ${p##*/}: $(grep -c '^\[       OK' "$build/log") tests"
  else
    failed=$((failed + 1))
    echo "FAIL ${p##*/}"
    tail -n 20 "$build/log"
  fi
done
echo "$((${#programs[@]} - failed)) passed, $failed failed"
[ $failed -eq 0 ]
