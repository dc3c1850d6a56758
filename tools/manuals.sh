#!/usr/bin/env bash
# Writes the man pages and the completions of bash, zsh and fish that a program prints, into folders that exist.
# Usage: manuals.sh PROGRAM SHARE   (as in /usr/local/share)   manuals.sh --dirs: those folders below SHARE
set -euo pipefail
if [ "$1" = --dirs ]; then
  echo man/man1 bash-completion/completions zsh/site-functions fish/vendor_completions.d
  exit
fi
program=$1 share=$2
put() { # file, arguments of help
  "$program" help "${@:2}" >"$share/$1"
  chmod 644 "$share/$1"
}
put man/man1/evenkeel.1 --man
for command in $("$program" help --markdown | sed -n 's/^| `\([a-z]*\)[ `].*/\1/p'); do
  put "man/man1/evenkeel-$command.1" --man "$command"
done
put bash-completion/completions/evenkeel --completion bash
put zsh/site-functions/_evenkeel --completion zsh
put fish/vendor_completions.d/evenkeel.fish --completion fish
