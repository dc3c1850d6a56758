#!/usr/bin/env bash
# Calls that may not stand on the way to an answer: libm's transcendentals (their bits differ between
# machines), random numbers and clocks with hidden state, and the environment outside the options table.
set -u
cd "$(dirname "$0")/../.." || exit
bad=0
ban() { # pattern, folders, why
  local hits
  hits=$(grep -rnE "(^|[^a-zA-Z0-9_])($1)[[:space:]]*\(" $2 --include='*.c' --include='*.h' | grep -vE '^[^:]*:[0-9]+:[[:space:]]*(/?\*|//)')
  if [ -n "$hits" ]; then echo "$hits"; echo "  banned: $3"; bad=1; fi
}
answer="src/media src/ops src/lib src/model src/cache src/engine"
seen="$answer src/chat src/open src/serve src/text src/cli" # all that a client or a user sees
ban 'expf?|exp2f?|expm1f?|logf?|log2f?|log10f?|log1pf?|powf?|sinf?|cosf?|tanf?|tanhf?|sinhf?|coshf?|sincosf?|erff?|cbrtf?|_mm[0-9]*_(rcp|rsqrt)[0-9a-z_]*' "$seen" 'libm transcendentals and approximate instructions on the answer path (ops/math.h and media/real.h have ours)'
# Form B (ops/bf16_step.h) defines what the instruction does, and only the files named after it may use it.
hits=$(grep -rnE '_mm[0-9]*_dpbf16_ps' src --include='*.c' --include='*.h' | grep -vE '^src/ops/[a-z0-9_/]*bf16\.[ch]:')
if [ -n "$hits" ]; then echo "$hits"; echo "  banned: bf16 dot instructions outside Form B"; bad=1; fi
ban 'rand|srand|random|srandom|drand48|rand_r|time|gettimeofday|clock' "$answer src/text src/tensor" 'hidden state on the answer path'
ban 'getenv|secure_getenv' "$(ls -d src/*/ | grep -v src/cli/ | tr '\n' ' ')" 'the environment is read by the options table alone'
ban 'strcpy|strcat|sprintf|vsprintf|gets|alloca' "src" 'unbounded writes'
hits=$(grep -rnE 'EK_ASSERT\(.*(\) == EK_OK|->[a-z_]+\()' src)
if [ -n "$hits" ]; then echo "$hits"; echo "  banned: work inside an assertion: call, then assert"; bad=1; fi
grep -rnE 'ffast-math|funsafe-math|Ofast' Makefile tools/make && { echo "  banned: value-changing optimisation"; bad=1; }
exit $bad
