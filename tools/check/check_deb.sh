#!/usr/bin/env bash
# The packages that `make dist` left in build/dist: lintian finds no error; on Debian 11, 12 and 13 they are installed without
# a network, the program answers as its service's user, and a purge leaves nothing. On Debian 12 an example of the library and
# the Python package answer as the program does.
# Needs root, debootstrap, lintian. Usage: check_deb.sh BUILD_DIR [ROOTS: what tools/dist/roots.sh keeps]
# tier: release
set -u
cd "$(dirname "$0")/../.." || exit
roots=${2:-}
debs=$(find build/dist -maxdepth 1 -name '*.deb' 2>/dev/null)
[ "$(wc -w <<<"$debs")" -eq 4 ] || { echo "no four packages in build/dist (make dist): not run"; exit 77; }
[ "$(id -u)" -eq 0 ] || { echo "chroot needs root: not run"; exit 77; }
command -v debootstrap lintian >/dev/null && [ "$(command -v debootstrap lintian | wc -l)" -eq 2 ] ||
  { echo "debootstrap or lintian is not installed: not run"; exit 77; }
passed=0; failed=0
. tools/dist/roots.sh
check() { # what, exit status
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $1"; fi
}
# What a package may change: files, their owners and modes, users. Not dpkg's own notes, logs, and copies of older lists of users.
listing() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./try -o -path ./var/lib/dpkg -o -path ./var/log -o -path ./var/cache -o -path ./tmp \) -prune -o \
    ! -name '*-' ! -name .pwd.lock -printf '%y %m %U %p\n' | sort
    ls var/cache; sort etc/passwd etc/group etc/shadow etc/gshadow; ls var/lib/dpkg/info | grep evenkeel)
}

# shellcheck disable=SC2086 # names without spaces
lintian --fail-on error $debs >"$dir/log" 2>/dev/null; check "lintian: $(cat "$dir/log")" $?
for suite in bullseye bookworm trixie; do
  make_root $suite || { check "no root of $suite: $(tail -n 1 "$dir/log")" 1; continue; }
  for deb in $debs; do name=${deb##*/}; cp "$deb" "$root/try/${name%%_*}.deb"; done; write_served "$root/try/served"
  before=$(listing)
  in_root "dpkg -i /try/evenkeel.deb /try/libevenkeel0.deb" >"$dir/log" 2>&1; check "$suite: it is installed: $(tail -n 3 "$dir/log")" $?
  in_root "/sbin/ldconfig -p | grep -q libevenkeel.so.0 && ldd -r /usr/lib/libevenkeel.so.0" >"$dir/log" 2>&1 && ! grep -E "not found|undefined" "$dir/log"
  check "$suite: the library's symbols are all there: $(cat "$dir/log")" $?
  mode=$(stat -c '%a %U' "$root/etc/evenkeel.env"); [ "$mode" = "600 root" ]; check "$suite: the file of options is root's: $mode" $?
  in_root "stat -c \"%a %U %G\" /var/lib/evenkeel /var/cache/evenkeel" >"$dir/log"; [ "$(sort -u "$dir/log")" = "700 evenkeel evenkeel" ]
  check "$suite: folders are the user's: $(cat "$dir/log")" $?
  in_root "cd /var/lib/evenkeel && HOME=/var/lib/evenkeel bash /try/served /usr/bin/evenkeel 8080" evenkeel:evenkeel >"$dir/log" 2>&1
  grep -q '"completion_tokens":8' "$dir/log" && grep -q '^ended 0' "$dir/log"; check "$suite: its service's user serves: $(tail -n 3 "$dir/log")" $?
  cp docs/pocket-curves.png "$root/try"
  in_root "evenkeel preprocess --image /try/pocket-curves.png && evenkeel selftest" >"$dir/log" 2>&1
  grep -q ' passed, 0 failed$' "$dir/log"; check "$suite: a picture and the selftest: $(tail -n 1 "$dir/log")" $?
  for file in man/man1/evenkeel-serve.1.gz bash-completion/completions/evenkeel zsh/vendor-completions/_evenkeel doc/evenkeel/copyright; do
    [ -s "$root/usr/share/$file" ]; check "$suite: /usr/share/$file" $?
  done
  in_root "touch /var/lib/evenkeel/journal.jsonl /var/cache/evenkeel/pages; dpkg -i /try/evenkeel.deb" >"$dir/log" 2>&1 && [ -e "$root/var/lib/evenkeel/journal.jsonl" ]
  check "$suite: an update keeps what the service wrote: $(tail -n 3 "$dir/log")" $?
  in_root "dpkg -r evenkeel" >"$dir/log" 2>&1 && [ -e "$root/var/lib/evenkeel/journal.jsonl" ] && [ -e "$root/etc/evenkeel.env" ] && [ ! -e "$root/usr/bin/evenkeel" ]
  check "$suite: a removal keeps it too: $(tail -n 3 "$dir/log")" $?
  in_root "dpkg -P evenkeel libevenkeel0" >"$dir/log" 2>&1; check "$suite: purge: $(tail -n 3 "$dir/log")" $?
  after=$(listing)
  [ "$before" = "$after" ]; check "$suite: a purge leaves: $(diff <(echo "$before") <(echo "$after") | head -n 8)" $?
  end_root
done


# --- the library and the Python package ---
if make_root bookworm bookworm-build gcc,libc6-dev,pkg-config,python3; then
  for deb in $debs; do name=${deb##*/}; cp "$deb" "$root/try/${name%%_*}.deb"; done
  before=$(listing)
  in_root "dpkg -i /try/*.deb" >"$dir/log" 2>&1; check "all four are installed: $(tail -n 3 "$dir/log")" $?
  in_root 'gcc -O2 -Wall -Werror -o /try/chat /usr/share/doc/libevenkeel-dev/examples/chat.c $(pkg-config --cflags --libs evenkeel)' >"$dir/log" 2>&1
  check "an example is compiled: $(tail -n 3 "$dir/log")" $?
  in_root "evenkeel run --temperature 0 --max-tokens 40 Hello" >"$dir/want" 2>/dev/null; [ -s "$dir/want" ]; check "the program answers" $?
  in_root "printf \"Hello\\n\" | /try/chat /usr/share/evenkeel/models/pocket" >"$dir/got" 2>"$dir/log"
  grep -qF "$(head -n 1 "$dir/want")" "$dir/got"; check "the example says what the program says: $(cat "$dir/want" "$dir/got" "$dir/log")" $?
  cat >"$root/try/python.py" <<'TEXT'
import evenkeel
with evenkeel.Model() as model:
    print(model.chat([{"role": "user", "content": "Hello"}], temperature=0, max_tokens=40).text)
TEXT
  in_root "python3 /try/python.py" >"$dir/got" 2>"$dir/log"
  cmp -s "$dir/want" "$dir/got"; check "Python says what the program says: $(cat "$dir/want" "$dir/got" "$dir/log")" $?
  in_root "dpkg -P python3-evenkeel libevenkeel-dev libevenkeel0 evenkeel" >"$dir/log" 2>&1; check "purge of all: $(tail -n 3 "$dir/log")" $?
  after=$(listing)
  [ "$before" = "$after" ]; check "a purge of all leaves: $(diff <(echo "$before") <(echo "$after") | head -n 8)" $?
else
  check "no root of bookworm with a compiler: $(tail -n 1 "$dir/log")" 1
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
