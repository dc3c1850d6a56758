/* VDPBF16PS against the step of Form B (contract: ops/bf16_step.h). */
#include "ops/x86/vec_avx512.h"

#include "ops/bf16_step.h"
#include "ops/x86/vec_bf16.h"
#include "tensor/dtype.h"

/* Sums and factors are numbers around 2^-126, around cancellation, and ordinary ones. */
bool ek_bf16_sound(void)
{
    static const float sums[] = {0.0f,      1.0f,   -0x1.000002p0f, 0x1.8p-1f, 0x1p-126f, -0x1.fffffep-127f,
                                 0x1p-149f, 0x1p24f};
    static const uint16_t factors[] = {0x3f80, 0xbf81, 0x3dcd, 0x4b7f, 0x2012, 0x9f80,
                                       0x0080, 0x0001, 0xb33f, 0x0000, 0x8000};
    enum { SUMS = sizeof sums / sizeof *sums, FACTORS = sizeof factors / sizeof *factors };
    uint32_t state = 1;
    for (int n = 0; n < 64; n++) {
        float sum[16], got[16];
        uint16_t a[32], b[32];
        for (int i = 0; i < 32; i++) {
            state = state * 1664525 + 1013904223;
            a[i] = factors[(state >> 8) % FACTORS], b[i] = factors[(state >> 16) % FACTORS];
            if (i < 16) sum[i] = sums[(state >> 24) % SUMS];
        }
        v_store(got, dp(v_load(sum), _mm512_loadu_si512(a), _mm512_loadu_si512(b)));
        for (int i = 0; i < 16; i++) {
            float want = ek_bf16_pair(ek_bf16_flush(sum[i]), ek_bf16_f32(a[2 * i]), ek_bf16_f32(b[2 * i]),
                                      ek_bf16_f32(a[2 * i + 1]), ek_bf16_f32(b[2 * i + 1]));
            if (ek_f32_bits(want) != ek_f32_bits(got[i])) return false;
        }
    }
    return true;
}
