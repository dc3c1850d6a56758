/* Form Q of MLX's weights on AVX2 and AVX-VNNI. */
#include "ops/x86/isa.h"

#ifdef EK_ISA_avx2
#include "ops/linear/x86/linear_q_avx2.h"
#else
#include "ops/linear/x86/linear_q_avxvnni.h"
#endif
#include "ops/linear/x86/linear_q_256.h"
#include "ops/linear/linear.h"

TILES_OF(CODES_4)
TILES_OF(CODES_8)

void EK_OF_ISA(ek_linear_q4)(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                             int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, tiles_CODES_4);
}

void EK_OF_ISA(ek_linear_q8)(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                             int p1)
{
    run(w, x, r0, r1, y, ldy, p0, p1, tiles_CODES_8);
}
