#!/usr/bin/env bash
# Installs the Debian packages that building and testing need, if any is missing. Does nothing,
# and needs no rights, when all are there. Usage: setup.sh [FURTHER PACKAGE...]
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(uname -s)" != Darwin ] || exec tools/setup_macos.sh "$@"
packages=(gcc make pkg-config libc6-dev libjansson-dev libevent-dev libsqlite3-dev libedit-dev libcurl4-openssl-dev
  libssl-dev redis-tools libmsgpack-dev libvulkan-dev glslc mesa-vulkan-drivers vulkan-validationlayers
  libjpeg-dev libpng-dev libwebp-dev libgif-dev libheif-dev libsndfile1-dev libsoxr-dev
  ca-certificates libcmocka-dev curl python3 libjs-marked libjs-highlight.js "$@")
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: all ${#packages[@]} packages are installed"
  exec tools/page/get.sh
fi
echo "setup: installing ${missing[*]}"
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup: not root and no sudo; install these yourself: ${missing[*]}" >&2; exit 1; }
  sudo="sudo"
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "setup: done"
tools/page/get.sh
