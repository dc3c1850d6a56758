#!/usr/bin/env bash
# Creates folders for an installation and notes those that were not there, so that uninstall removes exactly
# these. Usage: install_dirs.sh DESTDIR LIST DIR...; LIST (a file below DESTDIR) gets a line per new folder,
# parents first.
set -eu
dest=$1 list=$2; shift 2
new=()
make_dir() { # path without DESTDIR
  [ -d "$dest$1" ] && return
  case $1 in /*/*) make_dir "${1%/*}" ;; esac
  mkdir "$dest$1"
  new+=("$1")
}
[ -z "$dest" ] || mkdir -p "$dest"
make_dir "${list%/*}"
for dir in "$@"; do make_dir "$dir"; done
[ ${#new[@]} -eq 0 ] || printf '%s\n' "${new[@]}" >> "$dest$list"
