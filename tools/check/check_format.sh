#!/usr/bin/env bash
# Layout is .clang-format's. Other versions of clang-format lay out the same settings differently, so only the
# one of Debian 12 decides; `make format` rewrites the files.
set -u
cd "$(dirname "$0")/../.." || exit
if ! clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
  echo "clang-format 14 is not installed"
  exit 77
fi
clang-format --dry-run --Werror $(git ls-files '*.c' '*.h' '*.cu' '*.cuh') 2>&1 | grep -E 'error: ' | head -n 20
exit "${PIPESTATUS[0]}"
