#!/usr/bin/env bash
# Facts about the tree: no machine paths, no notes or halves of a patch left behind, every target of the README exists, and
# two layers' tests in one make write no archive twice.
# Where the papers point: check_links.sh.
set -u
cd "$(dirname "$0")/../.." || exit
bad=0
# The letters are split so that this file does not find itself.
if git grep -nE "/wor[k]/|/roo[t]/|/far[m]/|TOD[O]|FIXM[E]|XX[X][^A-Za-z]" -- . ':!models' ':!*.json' 2>/dev/null; then
  echo "  machine paths or notes left in the tree"; bad=1
fi
if git ls-files | grep -E '\.(orig|rej|patch)$'; then
  echo "  leftovers of a patch in the tree"; bad=1
fi
# Once for all targets, and none that they call: make takes seconds to read the tree. It names those that it does not have.
targets=$(grep -ohE '`make [a-z-]+' README.md CONTRIBUTING.md | sed 's/`make //' | sort -u)
said=$(make -n -k MAKE=: $targets 2>&1 >/dev/null) || { echo "README or CONTRIBUTING names a target of make that does not exist:"; echo "$said"; bad=1; }
# Two makes side by side would write it at once, and one could link the other's half. In an empty folder, as all is made there.
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
plan=$(make -n B="$dir" test-base test-text 2>/dev/null)
archives=$(grep -oE ' rcs [^ ]+\.a' <<<"$plan" | sort)
[ -n "$archives" ] || { echo "make test-base test-text writes no archive"; bad=1; }
twice=$(uniq -d <<<"$archives")
[ -z "$twice" ] || { echo "make test-base test-text writes an archive twice:"; echo "$twice"; bad=1; }
exit $bad
