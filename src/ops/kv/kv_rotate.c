#include "ops/kv/kv_rotate.h"

#include <math.h>

#include "ops/math.h"

/* x = R x. */
static void attn_rotate(float *x, int dim)
{
    const int n = ek_attn_block(dim);
    for (int h = 1; h < n; h *= 2)
        for (int i = 0; i < dim; i += 2 * h)
            for (int j = i; j < i + h; j++) {
                const float a = x[j], b = x[j + h];
                x[j] = a + b, x[j + h] = a - b;
            }
}

void ek_attn_rotate_back(float *x, int dim)
{
    const float by = 1.0f / (float)ek_attn_block(dim);
    attn_rotate(x, dim);
    for (int d = 0; d < dim; d++) x[d] *= by;
}

static float held(float x, float max)
{
    return x > -max ? x < max ? x : max : -max; /* NaN: -max */
}

float ek_attn_encode(float *x, int dim, int max_code, int16_t *code)
{
    const float whole = 0x1.8p23f, c = (float)max_code;
    float t = 0;
    for (int d = 0; d < dim; d++) x[d] = held(x[d], 0x1p96f);
    attn_rotate(x, dim);
    for (int d = 0; d < dim; d++) t = fabsf(x[d]) > t ? fabsf(x[d]) : t;
    const bool none = t < 0x1p-100f;
    const float by = none ? 0 : c / t;
    for (int d = 0; d < dim; d++) code[d] = (int16_t)(held(x[d] * by, c) + whole - whole);
    return none ? 0 : t / c;
}
