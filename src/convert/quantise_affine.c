/* MLX affine. */
#include <math.h>
#include <string.h>

#include "convert/target.h"

static void put_code(uint8_t *row, size_t i, int bits, uint32_t u)
{
    size_t at = i * (size_t)bits;
    uint32_t v = u << at % 8;
    row[at / 8] |= (uint8_t)v;
    if (at % 8 + (size_t)bits > 8) row[at / 8 + 1] |= (uint8_t)(v >> 8);
}

static void put_bf16(uint8_t *to, float x)
{
    ek_bf16 h = ek_f32_bf16(x);
    memcpy(to, &h, sizeof h);
}

void ek_put_affine(const float *x, int n, int bits, int group, uint8_t *codes, uint8_t *scales, uint8_t *biases)
{
    const float top = (float)((1 << bits) - 1);
    memset(codes, 0, (size_t)n * (size_t)bits / 8);
    for (int g = 0; g < n / group; g++) {
        const float *w = x + g * group;
        float min = w[0], max = w[0];
        for (int i = 1; i < group; i++) {
            min = w[i] < min ? w[i] : min;
            max = w[i] > max ? w[i] : max;
        }
        bool low = fabsf(min) > fabsf(max);
        float s = (max - min) / top, edge = low ? min : max, bias = 0;
        s = s > 1e-7f ? s : 1e-7f;
        s = low ? s : -s;
        float at_zero = rintf(edge / s);
        if (at_zero != 0) s = edge / at_zero, bias = edge;
        for (int i = 0; i < group; i++) {
            float q = rintf((w[i] - bias) / s);
            q = q < 0 ? 0 : q > top ? top : q;
            put_code(codes, (size_t)(g * group + i), bits, (uint32_t)q);
        }
        put_bf16(scales + 2 * g, s);
        put_bf16(biases + 2 * g, bias);
    }
}
