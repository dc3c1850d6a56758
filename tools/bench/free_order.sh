#!/usr/bin/env bash
# What the fixed order of float sums costs linear layers: bench_linear in turns with a build whose sums may take any
# order, in a folder of its own. That build's answers are not the engine's. free_order.sh [ISA [ROWS,ROWS,...]]
set -eu
cd "$(dirname "$0")/../.."
isa=${1:-avx512} rows=${2:-1,512} free=build/free-order
make --no-print-directory build/release/bench/bench_linear
make --no-print-directory B=$free CFLAGS="-g -ffast-math -ffp-contract=fast -DEK_FREE_ORDER" $free/bench/bench_linear
for turn in 1 2 3; do
    echo "turn $turn, fixed order"
    build/release/bench/bench_linear 1 "$isa" 4 64 "$rows"
    echo "turn $turn, free order"
    $free/bench/bench_linear 1 "$isa" 4 64 "$rows"
done
