/* Form PLANES on AMX: A-groups of 32 or 16 inputs, one tile product each. */
#include "ops/linear/x86/linear_amx.h"
#include "ops/linear/x86/planes/linear_p_unpack_512.h"

AMX_FNS(32)
AMX_FNS(16)

/* The number of rows decides speed only: AVX-512 gives the same bits. */
void ek_linear_planes_amx(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    if (r1 - r0 < MIN_ROWS) ek_linear_planes_avx512(w, x, r0, r1, y, ldy, p0, p1);
    else amx_run(w, x, r0, r1, y, ldy, p0, p1, unpack_of(w), w->a_group == 16 ? slots_16 : slots_32);
}
