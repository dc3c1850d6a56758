/* The body of ek_weight_sum for compilers that may use FMA and vectors: 16 lanes at a time,
 * without branches, so that the compiler can keep a lane a vector element. Included once by
 * each weights_ISA.c, which names the function. The steps are ek_exp's, in its order. */
#include <math.h>

#include "engine/weights.h"
#include "ops/tree.h"
#include "tensor/dtype.h"

static inline float pow2_of(int n)
{
    return ek_bits_f32((uint32_t)(n + 127) << 23);
}

/* exp(s) for s <= 0 or -inf */
static inline float exp_below(float s)
{
    s = s > -0x1p20f ? s : -0x1p20f;
    float nf = rintf(s * 1.44269504f);
    float r = fmaf(nf, -0.693145751953125f, s);
    r = fmaf(nf, -1.428606765330187e-06f, r);
    float q = 1.9875691500e-4f;
    q = fmaf(q, r, 1.3981999507e-3f);
    q = fmaf(q, r, 8.3334519073e-3f);
    q = fmaf(q, r, 4.1665795894e-2f);
    q = fmaf(q, r, 1.6666665459e-1f);
    q = fmaf(q, r, 5.0000001201e-1f);
    float p = fmaf(q, r * r, r) + 1.0f;
    int n = (int)nf;
    n = n < -252 ? -252 : n;
    int low = n < -126; /* two steps, as ek_ldexp */
    float y = p * pow2_of(low ? n + 126 : n);
    return low ? y * 0x1p-126f : y;
}

float WEIGHT_SUM(const float *z, int n, float top)
{
    ek_tree tree = {.count = 0};
    for (int at = 0; at < n; at += 256) {
        float lane[16] = {0};
        int end = at + 256 < n ? at + 256 : n, i = at;
        for (; i + 16 <= end; i += 16) {
            float e[16];
            for (int l = 0; l < 16; l++) e[l] = exp_below(z[i + l] - top);
            for (int l = 0; l < 16; l++) lane[l] += e[l];
        }
        for (int l = 0; i < end; i++, l++) lane[l] += exp_below(z[i] - top);
        for (int apart = 8; apart > 0; apart /= 2)
            for (int l = 0; l < apart; l++) lane[l] += lane[l + apart];
        ek_tree_push(&tree, lane[0]);
    }
    return ek_tree_sum(&tree);
}
