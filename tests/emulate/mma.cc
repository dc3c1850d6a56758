// Products of matrices by a warp (device.h).
#include "emulate/device.h"

// Lane l has of a: rows l / 4 and l / 4 + 8, inputs 4 (l % 4) and 16 + 4 (l % 4); of b: column l / 4, the same inputs;
// of d: rows l / 4 and l / 4 + 8, columns 2 (l % 4) and that + 1.
void ek_emulated_mma(int (&d)[4], const uint32_t *a, uint32_t b0, uint32_t b1)
{
    const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const ek_emulated_words *all = ek_emulated_share(~0u, mine, sizeof mine);
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        const int column = 2 * t + i % 2;
        for (int q = 0; q < 4; q++)
            for (int half = 0; half < 2; half++) {
                const uint32_t x = all[g * 4 + q][half * 2 + i / 2], y = all[column * 4 + q][4 + half];
                for (int e = 0; e < 4; e++) d[i] += (int8_t)(x >> 8 * e) * (int8_t)(y >> 8 * e);
            }
    }
}

// 16 products, by vectors.
static int dot(const int16_t *x, const int8_t *y)
{
    int sum = 0;
    for (int k = 0; k < 16; k++) sum += x[k] * (int16_t)y[k];
    return sum;
}

// A warp's 16 outputs of the warpgroup's 64: its product needs no other warp. Element k of column n of b lies where the
// 128-byte swizzle puts it (src/cuda/kernels/mma.cuh): 16 inputs of a column lie together.
void ek_emulated_wgmma(int *d, int columns, bool kept, const uint32_t *a, const void *b)
{
    const ek_emulated_words *all = ek_emulated_share(~0u, a, 4 * sizeof *a);
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int16_t rows[2][32]; // g, g + 8
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 32; k++) rows[half][k] = (int8_t)(all[g * 4 + k % 16 / 4][half + k / 16 * 2] >> k % 4 * 8);
    for (int i = 0; i < columns / 2; i++) {
        const int n = i / 4 * 8 + 2 * t + i % 2;
        int sum = kept ? d[i] : 0;
        for (int k = 0; k < 32; k += 16) {
            const uintptr_t at = (uintptr_t)b + (uintptr_t)(n / 8 * 1024 + n % 8 * 128 + k);
            sum += dot(&rows[i / 2 % 2][k], (const int8_t *)(at ^ (at >> 7 & 7) << 4));
        }
        d[i] = sum;
    }
}
