#!/usr/bin/env bash
# The folder of a tarball without licences: programs, models, man pages, completions, unit.
# Usage: layout.sh PROGRAMS TREE [PRINTER]   (PROGRAMS has evenkeel and evenkeel-decode; TREE is made; PRINTER runs evenkeel)
set -euo pipefail
cd "$(dirname "$0")/../.."
programs=$1 tree=$2
install -d "$tree/bin" "$tree/share/evenkeel/models"
install -m 755 "$programs/evenkeel" "$programs/evenkeel-decode" "$tree/bin"
for model in pocket pocket-drafter; do
  install -d "$tree/share/evenkeel/models/$model"
  install -m 644 models/$model/* "$tree/share/evenkeel/models/$model"
done
install -m 644 LICENSE CHANGELOG.md "$tree"
for dir in $(tools/manuals.sh --dirs); do install -d "$tree/share/$dir"; done
tools/manuals.sh "${3:-$programs/evenkeel}" "$tree/share"
sed 's#/usr/local/bin#/opt/evenkeel/bin#' deploy/evenkeel.service >"$tree/evenkeel.service"
