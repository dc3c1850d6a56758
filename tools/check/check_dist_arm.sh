#!/usr/bin/env bash
# The tarball for 64-bit Arm that `make dist-aarch64` left runs under qemu's user mode, with Debian 11's C library: every bit
# of its logits, its text and a served answer are the normal build's. Pictures need a kernel that starts Arm's programs
# (binfmt_misc): the decoders are a program of their own. Usage: check_dist_arm.sh BUILD_DIR
# tier: release
set -u
cd "$(dirname "$0")/../.." || exit
build=$1
tarball=$(find build/dist-aarch64 -maxdepth 1 -name 'evenkeel-*-aarch64-linux.tar.xz' 2>/dev/null)
[ -n "$tarball" ] || { echo "no tarball in build/dist-aarch64 (make dist-aarch64): not run"; exit 77; }
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
command -v qemu-aarch64 >/dev/null || { echo "no qemu-aarch64 (Debian: qemu-user): not run"; exit 77; }
passed=0; failed=0; skipped=0
dir=$(mktemp -d); server=
trap '[ -z "$server" ] || kill $server 2>/dev/null; rm -rf "$dir"' EXIT
check() { # what, exit status
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $1"; fi
}
(cd build/dist-aarch64 && sha256sum -c --quiet "${tarball##*/}.sha256"); check "the tarball's SHA-256" $?
xz -dc "$tarball" | tar -xf - -C "$dir"; check "it is unpacked" $?
program=$dir/evenkeel/bin/evenkeel
arm() { timeout 300 qemu-aarch64 -cpu max -L build/dist-aarch64/libraries/libc "$program" "$@"; }
[ "$(arm version | sed -n 's/^build.* //p')" = aarch64 ]; check "it is of 64-bit Arm" $?
for file in share/man/man1/evenkeel-run.1 share/bash-completion/completions/evenkeel licences LICENSE sbom.spdx.json evenkeel.service; do
  [ -s "$dir/evenkeel/$file" ]; check "$file is in it" $?
done
same() { # what, arguments
  "$build/evenkeel" "${@:2}" >"$dir/want" 2>"$dir/log" && arm "${@:2}" >"$dir/got" 2>>"$dir/log" && [ -s "$dir/want" ] && cmp -s "$dir/want" "$dir/got"
  check "$1: $(tail -n 2 "$dir/log")" $?
}
same "text at temperature 0" run --temperature 0 --max-tokens 24 "What is a keel?"
same "text with a seed" run --temperature 1 --seed 5 --max-tokens 24 Hello
"$build/evenkeel" logits --ids 2,17,9,300,41,77 --out "$dir/want" >/dev/null 2>"$dir/log" && arm logits --ids 2,17,9,300,41,77 --out "$dir/got" >/dev/null 2>>"$dir/log" &&
  [ -s "$dir/want" ] && cmp -s "$dir/want" "$dir/got"
check "every bit of the logits: $(tail -n 2 "$dir/log")" $?
if [ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then same "a picture" preprocess --image docs/pocket-curves.png
else skipped=$((skipped + 1)); echo "skipped pictures: the kernel does not start Arm's programs"; fi
qemu-aarch64 -cpu max -L build/dist-aarch64/libraries/libc "$program" serve --port 0 --port-file "$dir/port" >"$dir/log" 2>&1 & server=$!
for _ in $(seq 300); do [ -e "$dir/port" ] && break; sleep 0.1; done
body='{"messages":[{"role":"user","content":"Hello"}],"temperature":0,"max_tokens":8}'
curl -sS --max-time 60 "http://127.0.0.1:$(cat "$dir/port")/v1/chat/completions" -d "$body" >"$dir/got" 2>>"$dir/log"
grep -q '"completion_tokens":8' "$dir/got"; check "a served answer: $(cat "$dir/got" "$dir/log")" $?
kill $server; wait $server; check "it stops with 0" $?
server=
if [ $skipped -gt 0 ]; then echo "$passed passed, $failed failed, $skipped skipped"; else echo "$passed passed, $failed failed"; fi
[ "$failed" -eq 0 ]
