/* Form Q of MLX's weights on AMX: A-groups of 64 or 32 inputs, one tile product each. */
#include "ops/linear/x86/linear_amx.h"
#include "ops/linear/x86/linear_q_unpack_512.h"

AMX_FNS(64)
AMX_FNS(32)

static void run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    amx_run(w, x, r0, r1, y, ldy, p0, p1, unpack, w->a_group == 32 ? slots_32 : slots_64);
}

/* The number of rows decides speed only: AVX-512 gives the same bits. */
void ek_linear_q4_amx(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    if (r1 - r0 < MIN_ROWS) ek_linear_q4_avx512(w, x, r0, r1, y, ldy, p0, p1);
    else run(w, x, r0, r1, y, ldy, p0, p1);
}

void ek_linear_q8_amx(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    if (r1 - r0 < MIN_ROWS) ek_linear_q8_avx512(w, x, r0, r1, y, ldy, p0, p1);
    else run(w, x, r0, r1, y, ldy, p0, p1);
}
