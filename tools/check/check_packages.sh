#!/usr/bin/env bash
# Tarball and package as `make dist` lays them out, with this build's programs: they answer from any folder, decode a picture,
# and hold what they name. check_dist.sh and check_deb.sh run the real ones. Usage: check_packages.sh BUILD_DIR
# tier: all
set -u
cd "$(dirname "$0")/../.." || exit
build=$1
case $build in *san) echo "a sanitizer's build is not packed: not run"; exit 77 ;; esac
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
[ -e models/pocket/config.json ] || { echo "no models/pocket: not run"; exit 77; }
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
picture=$PWD/docs/pocket-curves.png
passed=0; failed=0
check() { # what, exit status
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $1"; fi
}
# From another folder, without this one's environment.
from_root() { (cd / && env -i HOME="$dir" PATH=/usr/bin:/bin "$@"); }
want=$(from_root "$PWD/$build/evenkeel" run --temperature 0 --max-tokens 8 Hello 2>/dev/null)
[ -n "$want" ]; check "the build answers" $?
answers() { # name, program
  local got
  got=$(from_root "$2" run --temperature 0 --max-tokens 8 Hello 2>"$dir/log"); [ "$got" = "$want" ]; check "$1 answers: $got $(cat "$dir/log")" $?
  from_root "$2" preprocess --image "$picture" >/dev/null 2>"$dir/log"; check "$1 decodes a picture: $(cat "$dir/log")" $?
  ! grep -q "$PWD" "$dir/log"; check "$1 names the source tree" $?
}

tree=$dir/dist/evenkeel-tree/evenkeel
tools/dist/layout.sh "$build" "$tree" >"$dir/log" 2>&1; check "the tarball's folder is laid out: $(cat "$dir/log")" $?
mkdir "$dir/un packed" && tar -C "$dir/dist/evenkeel-tree" -cf - evenkeel | tar -C "$dir/un packed" -xf -; check "it is packed and unpacked" $?
answers "the tarball" "$dir/un packed/evenkeel/bin/evenkeel"
ln -s "$dir/un packed/evenkeel/bin/evenkeel" "$dir/link"
from_root "$dir/link" version >"$dir/log" 2>&1; check "a link to its program: $(cat "$dir/log")" $?
n=$("$build/evenkeel" help --markdown | sed '/^## Options/,$d' | grep -c '^| `')
[ "$(find "$dir/un packed/evenkeel/share/man" -name '*.1' -size +0 | wc -l)" -eq $((n + 1)) ]; check "a man page for each of $n commands" $?
for shell in bash-completion/completions/evenkeel zsh/site-functions/_evenkeel fish/vendor_completions.d/evenkeel.fish; do
  [ -s "$dir/un packed/evenkeel/share/$shell" ]; check "$shell" $?
done

if command -v dpkg-deb >/dev/null; then
  mkdir "$tree/licences" && touch "$tree/sbom.spdx.json" # make dist writes them, from what it links
  SOURCE_DATE_EPOCH=1 DEB_LEVEL=0 tools/dist/deb.sh "$dir/dist" 0.0.1 >"$dir/log" 2>&1; check "the package is made: $(tail -n 2 "$dir/log")" $?
  deb=$dir/dist/evenkeel_0.0.1_amd64.deb
  dpkg-deb -x "$deb" "$dir/installed" && dpkg-deb -e "$deb" "$dir/control"; check "it is read" $?
  answers "the package" "$dir/installed/usr/bin/evenkeel"
  ! dpkg-deb -c "$deb" | awk '{print $2}' | grep -v '^root/root$'; check "everything is root's" $?
  for script in postinst prerm postrm; do sh -n "$dir/control/$script"; check "$script" $?; done
  (cd "$dir/installed" && md5sum --quiet -c "$dir/control/md5sums"); check "its sums" $?
  grep -q '^Type=notify$' "$dir/installed/usr/lib/systemd/system/evenkeel.service"; check "its unit" $?
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
