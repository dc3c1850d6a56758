#!/usr/bin/env bash
# The tarball that `make dist` left in build/dist runs on Debian 11, 12 and 13, with nothing installed and no network: text,
# a picture, a sound, a server and the selftest, with the same answers as the normal build. Needs root and debootstrap.
# Usage: check_dist.sh BUILD_DIR [ROOTS: what tools/dist/roots.sh keeps]
# tier: release
set -u
cd "$(dirname "$0")/../.." || exit
build=$1 roots=${2:-}
tarball=$(find build/dist -maxdepth 1 -name 'evenkeel-*-x86_64-linux.tar.xz' 2>/dev/null)
[ -n "$tarball" ] || { echo "no tarball in build/dist (make dist): not run"; exit 77; }
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
[ "$(id -u)" -eq 0 ] || { echo "chroot needs root: not run"; exit 77; }
command -v debootstrap >/dev/null || { echo "debootstrap is not installed: not run"; exit 77; }
passed=0; failed=0
. tools/dist/roots.sh
check() { # what, exit status
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $1"; fi
}
(cd build/dist && sha256sum -c --quiet "${tarball##*/}.sha256"); check "the tarball's SHA-256" $?

python3 - "$dir/tone.wav" <<'END'
import math, struct, sys, wave
with wave.open(sys.argv[1], 'wb') as f:
    f.setnchannels(1), f.setsampwidth(2), f.setframerate(44100)
    f.writeframes(b''.join(struct.pack('<h', int(9000 * math.sin(i / 20))) for i in range(44100)))
END
cp docs/pocket-curves.png "$dir/picture.png"
cat >"$dir/answers" <<'END'
set -e
cd /try
"$1" run --temperature 1 --seed 5 --max-tokens 24 "Hello"
"$1" preprocess --image picture.png
"$1" preprocess --audio tone.wav
END
write_served "$dir/served"
sed "s#cd /try#cd $dir#" "$dir/answers" >"$dir/here"
bash "$dir/here" "$PWD/$build/evenkeel" >"$dir/want" 2>"$dir/log"; check "the normal build answers: $(tail -n 1 "$dir/log")" $?

for suite in bullseye bookworm trixie; do
  make_root $suite || { echo "FAIL no root of $suite: $(tail -n 1 "$dir/log")"; failed=$((failed + 1)); continue; }
  cp "$dir"/{picture.png,tone.wav,answers,served} "$root/try"
  xz -dc "$tarball" | tar -xf - -C "$root/try"
  program=/try/evenkeel/bin/evenkeel
  in_root "ln -s $program /try/link; bash /try/answers /try/link" >"$dir/got" 2>"$dir/log"
  cmp -s "$dir/want" "$dir/got"; check "$suite: text, picture and sound as the normal build has them: $(diff "$dir/want" "$dir/got" | head -n 4; tail -n 2 "$dir/log")" $?
  in_root "$program selftest" >"$dir/log" 2>&1 && tail -n 1 "$dir/log" | grep -q ' passed, 0 failed'
  check "$suite: selftest: $(tail -n 1 "$dir/log")" $?
  in_root "bash /try/served $program 8080" >"$dir/log" 2>&1
  grep -q '"completion_tokens":8' "$dir/log" && grep -q '^ended 0' "$dir/log"; check "$suite: serve: $(tail -n 2 "$dir/log")" $?
  cp "$root$program" "$root/try/alone"
  ! in_root "/try/alone run hi" >/dev/null 2>"$dir/log" && grep -q 'copy the whole folder, or link to the program' "$dir/log"
  check "$suite: a copied program says what to do: $(cat "$dir/log")" $?
  end_root
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
