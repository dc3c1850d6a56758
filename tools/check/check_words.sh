#!/usr/bin/env bash
# Names whose words have one meaning (check_words.py). And that tool finds those that are planted. Usage: check_words.sh
set -u
cd "$(dirname "$0")/../.." || exit
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
bad=0
mkdir -p "$dir/src/cache" "$dir/src/text" "$dir/src/cuda/kernels"
printf '%s\n' '/* the most that was told */' 'int at_most, "most";' >"$dir/src/text/fine.c"
echo 'int most;' >"$dir/src/cuda/kernels/hashed.c"
said=$(tools/check/check_words.py --root "$dir")
[ -z "$said" ] || { echo "a tree without a banned word: $said"; bad=1; }
printf '%s\n' 'int rows_most;' 'int debt;' >"$dir/src/cache/a.c"
printf '%s\n' '' 'int told, debt;' >"$dir/src/text/b.c"
said=$(tools/check/check_words.py --root "$dir" | cut -d: -f1-3 | tr '\n' ' ')
[ "$said" = 'src/cache/a.c:1: rows_most src/cache/a.c:2: debt src/text/b.c:2: told ' ] ||
  { echo "planted words are not found as they stand: $said"; bad=1; }
tools/check/check_words.py || bad=1
exit $bad
