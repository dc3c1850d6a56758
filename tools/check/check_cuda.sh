#!/usr/bin/env bash
# The CUDA kernels of each architecture stay within the registers of tools/cuda/registers/ARCHITECTURE.txt, have no stack
# and spill nothing. Skipped where nvcc did not build them. `check_cuda.sh
# BUILD_DIR --write` writes anew the tables of those that were built. Tables of the others must be of today's kernels: each
# has a hash of every file that it was made from (tools/cuda/sources.py), for building all takes minutes.
set -u
cd "$(dirname "$0")/../.." || exit
if [ ! -e build/cuda/kernels.inc ]; then
  echo "the CUDA kernels were not built (nvcc is not installed, or CUDA=0)"
  exit 77
fi
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if ! "$nvcc" --version 2>/dev/null | grep -q 'release 13\.0'; then # others give a kernel other registers
  echo "the tables of registers are of nvcc 13.0"
  exit 77
fi
rc=0
sources=$(tools/cuda/sources.py) || exit 1
# A plain make builds for the cards that it finds.
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
printf '#!/bin/sh\nprintf "8.6\\n9.0\\n12.0\\n"\n' >"$dir/nvidia-smi"; chmod +x "$dir/nvidia-smi"
archs=$(env -u CUDA_ARCHS -u MAKEFLAGS PATH="$dir:$PATH" make -s cuda-archs)
[ "$archs" = "80 90a 120" ] || { echo "with RTX 30 and 50 in the machine CUDA_ARCHS is $archs, not 80 90a 120"; rc=1; }
for arch in $(cut -d' ' -f2 build/cuda/kernels.inc | sort -u); do # a build keeps what others left
  table=tools/cuda/registers/$arch.txt
  found=$(cut -d' ' -f2,3 build/cuda/kernels.inc | sed -n "s|^$arch \(.*\)|build/cuda/$arch/\1.ptxas|p" | xargs cat | awk '
    /Compiling entry function/ { match($0, /'"'"'[^'"'"']*'"'"'/); name = substr($0, RSTART + 1, RLENGTH - 2) }
    /bytes stack frame/ { stack[name] = $1; spill[name] = $5 + $9 }
    /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); print name, substr($0, RSTART + 5, RLENGTH - 5), stack[name] + 0, spill[name] + 0 }' | sort)
  if [ "${2-}" = --write ]; then
    { grep '^#' tools/cuda/registers/90a.txt | grep -vE '^# [a-z_0-9]+ [0-9a-f]{12}$'
      [ "$arch" = 90a ] || echo "$sources" | while read -r name hash; do
        grep -q "^kernel $arch $name " build/cuda/kernels.inc && echo "# $name $hash"
      done
      echo "$found" | cut -d' ' -f1,2; } >$table.new && mv $table.new $table
  fi
  [ -e "$table" ] || echo "$arch has no table of registers: stack and spills alone are looked at"
  awk -v table=$table -v arch="$arch" '
    NR == FNR { if ($0 !~ /^#/ && NF) most[$1] = $2; next }
    {
      seen[$1] = 1
      if (!($1 in most)) { if (length(most)) { print $1 " is not in " table; bad = 1 } }
      else if ($2 > most[$1]) { print $1 " uses " $2 " registers, the table has " most[$1]; bad = 1 }
      if ($3 || $4) { print $1 " for " arch " has " $3 " bytes of stack and spills " $4; bad = 1 }
    }
    END {
      for (k in most) if (!(k in seen)) { print k " is in " table " but was not built"; bad = 1 }
      exit bad
    }' <(cat "$table" 2>/dev/null || echo '#') <(echo "$found") || rc=1
done
[ "${2-}" = --write ] && exit $rc
# Files that a table was not made from as they are; a new file is in none. That of 9.0a has no hashes: every build has its
# code.
stale=$(for table in $(grep -lE '^# [a-z_0-9]+ [0-9a-f]{12}$' tools/cuda/registers/*.txt); do
  arch=$(basename $table .txt)
  absent=" $(make -s CUDA_ARCHS=$arch cuda-absent) "
  echo "$sources" | while read -r name hash; do
    case $absent in *" $name "*) continue ;; esac
    grep -qx "# $name $hash" $table || echo "$name.cu for $arch"
  done
done)
if [ -n "$stale" ]; then
  echo "these changed since their table of registers was written; run: make CUDA_ARCHS=all cuda &&" \
    "tools/check/check_cuda.sh build/release --write"
  echo "$stale"
  rc=1
fi
exit $rc
