#!/usr/bin/env bash
# The CUDA kernels stay within the registers of tools/cuda/registers.txt and spill nothing. Skipped where nvcc
# did not build them. `check_cuda.sh BUILD_DIR --write` writes the table anew.
set -u
cd "$(dirname "$0")/../.." || exit
table=tools/cuda/registers.txt
logs=() # of kernels that are there: a build keeps what others left
for source in src/cuda/kernels/*/*.cu; do
  log=build/cuda/$(basename "$source" .cu).ptxas
  [ -e "$log" ] && logs+=("$log")
done
if [ "${#logs[@]}" -eq 0 ]; then
  echo "the CUDA kernels were not built (nvcc is not installed, or CUDA=0)"
  exit 77
fi
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if ! "$nvcc" --version 2>/dev/null | grep -q 'release 13\.0'; then # others give a kernel other registers
  echo "the table of registers is of nvcc 13.0"
  exit 77
fi
found=$(cat "${logs[@]}" | awk '
  /Compiling entry function/ { match($0, /'"'"'[^'"'"']*'"'"'/); name = substr($0, RSTART + 1, RLENGTH - 2) }
  /bytes stack frame/ { stack[name] = $1; spill[name] = $5 + $9 }
  /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); print name, substr($0, RSTART + 5, RLENGTH - 5), stack[name] + 0, spill[name] + 0 }' | sort)
if [ "${2-}" = --write ]; then
  { sed -n '/^#/p' $table; echo "$found" | awk '{ print $1, $2 }'; } >$table.new && mv $table.new $table
  exit
fi
awk -v table=$table '
  NR == FNR { if ($0 !~ /^#/ && NF) most[$1] = $2; next }
  {
    seen[$1] = 1
    if (!($1 in most)) { print $1 " is not in " table; bad = 1 }
    else if ($2 > most[$1]) { print $1 " uses " $2 " registers, the table has " most[$1]; bad = 1 }
    if ($3 || $4) { print $1 " has " $3 " bytes of stack and spills " $4; bad = 1 }
  }
  END {
    for (k in most) if (!(k in seen)) { print k " is in " table " but was not built"; bad = 1 }
    exit bad
  }' $table <(echo "$found")
