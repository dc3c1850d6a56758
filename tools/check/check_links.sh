#!/usr/bin/env bash
# Every relative link of every paper leads to a file that is there, and to a heading that it has; so does every
# docs/….md that a comment names, every path of the tree that a reference page spells, and every name of ours.
set -u
cd "$(dirname "$0")/../.." || exit
exec python3 tests/e2e/links.py
