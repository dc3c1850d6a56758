#!/usr/bin/env bash
# Installs Homebrew's packages that building needs, if any is missing. Apple's command line tools bring the compiler and make.
# Written for macOS 12 and later, never run there. Usage: setup_macos.sh
set -euo pipefail
cd "$(dirname "$0")/.."
xcode-select -p >/dev/null 2>&1 || { echo "setup: no compiler; run xcode-select --install" >&2; exit 1; }
command -v brew >/dev/null || { echo "setup: no brew (https://brew.sh); it installs the libraries" >&2; exit 1; }
packages=(pkgconf jansson libevent sqlite libedit openssl@3 msgpack jpeg-turbo libpng webp giflib libheif libsndfile libsoxr cmocka)
missing=()
for p in "${packages[@]}"; do brew list --versions "$p" >/dev/null 2>&1 || missing+=("$p"); done
if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing ${missing[*]}"
  brew install --quiet "${missing[@]}"
fi
echo "setup: all ${#packages[@]} packages are installed"
tools/page/get.sh
