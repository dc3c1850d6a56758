/* Form Q of MLX's weights on AVX-VNNI. */
#include "ops/linear/x86/linear_q_avxvnni.h"
#include "ops/linear/x86/linear_q_256.h"

TILES_OF(CODES_4)
TILES_OF(CODES_8)

void ek_linear_q4_avxvnni(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, tiles_CODES_4);
}

void ek_linear_q8_avxvnni(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, tiles_CODES_8);
}
