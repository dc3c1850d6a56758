#!/usr/bin/env bash
# The page at / in headless Chromium; its screenshots stay in BUILD_DIR/page-shots. Usage: check_page.sh BUILD_DIR
# tier: all
set -eu
cd "$(dirname "$0")/../.."
case $1 in *san) echo "a browser and a sanitized server together take minutes: not run"; exit 77 ;; esac
command -v chromium >/dev/null || { echo "chromium is not installed (make setup-checks): not run"; exit 77; }
[ -x "$1/evenkeel" ] || { echo "no $1/evenkeel: not run"; exit 77; }
model=models/pocket
if [ ! -e $model/config.json ]; then
  model=$1/tiny
  python3 tests/e2e/tiny_model.py "$model"
fi
. tools/npm.sh
(npm_packages tests/page) || true # without axe-core its rows are skipped
PYTHONDONTWRITEBYTECODE=1 python3 tests/page/page.py "$1/evenkeel" "$model" "$1/page-shots"
