#!/usr/bin/env bash
# An installation works from anywhere and leaves nothing behind: the installed program answers with the
# installed model, and uninstall gives the folder back as it was. Usage: check_install.sh BUILD_DIR
# tier: all
# runs: make
set -u
cd "$(dirname "$0")/../.." || exit
build=${1:-build/release}
case $build in *san) echo "a sanitizer's build is not installed: not run"; exit 77 ;; esac
[ -e models/pocket/config.json ] || { echo "no models/pocket: not run"; exit 77; }
bad=0
picture=$PWD/docs/pocket-curves.png
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
tree() { (cd "$dir/place" && find . -printf '%y %p\n' | sort); }
installed() { # make target, prefix
  make --no-print-directory B="$build" "$1" PREFIX="$2" >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; bad=1; }
}

# An empty place, a place with folders of somebody else, and one with DESTDIR between.
mkdir -p "$dir/place/shared/bin" "$dir/place/shared/share/other"
echo keep >"$dir/place/shared/bin/other"
before=$(tree)
for prefix in "$dir/place/new/usr" "$dir/place/shared"; do
  installed install "$prefix"
  installed install "$prefix" # twice: the second one created no folder
  (cd / && "$prefix/bin/evenkeel" version) >"$dir/out" 2>&1 && grep -q '^evenkeel' "$dir/out" ||
    { echo "the installed program does not say its version:"; cat "$dir/out"; bad=1; }
  (cd / && "$prefix/bin/evenkeel" run --max-tokens 8 --temperature 0 hi) >"$dir/out" 2>"$dir/err" && [ -s "$dir/out" ] ||
    { echo "the installed program does not answer:"; cat "$dir/err"; bad=1; }
  # Root's helper becomes nobody, who may not enter this folder: it is begun all the same.
  (cd / && "$prefix/bin/evenkeel" preprocess --image "$picture") >"$dir/more" 2>"$dir/err" ||
    { echo "the installed program decodes no picture:"; cat "$dir/err"; bad=1; }
  grep -q "$PWD" "$dir/out" "$dir/err" && { echo "the installed program uses the source tree"; bad=1; }
  installed uninstall "$prefix"
done
after=$(tree)
[ "$before" = "$after" ] || { echo "uninstall leaves or takes:"; diff <(echo "$before") <(echo "$after"); bad=1; }

make --no-print-directory B="$build" install DESTDIR="$dir/place/dest" PREFIX=/usr >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; bad=1; }
(cd / && "$dir/place/dest/usr/bin/evenkeel" run --max-tokens 2 hi) >/dev/null 2>"$dir/err" ||
  { echo "the program does not answer below DESTDIR:"; cat "$dir/err"; bad=1; }
make --no-print-directory B="$build" uninstall DESTDIR="$dir/place/dest" PREFIX=/usr >"$dir/log" 2>&1
rmdir "$dir/place/dest" || { echo "uninstall leaves something below DESTDIR"; find "$dir/place/dest"; bad=1; }
exit $bad
