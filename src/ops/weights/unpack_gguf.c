/* GGUF's block formats as unsigned codes with float32 scales and biases. A row is a sequence of blocks; f16 is IEEE
 * binary16, little-endian as everything here. Every product below is exact in float32: an f16 has 11 bits, a sub-scale
 * at most 8. Layouts: ggml-common.h; values: dequantize_row_* of ggml-quants.c. */
#include "ops/weights/quantised_type.h"

#include <string.h>

const int8_t ek_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t ek_e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline float f16_at(const uint8_t *p)
{
    return ek_f16_f32((ek_f16)(p[0] | p[1] << 8));
}

/* Block i of a row, counted from the block with weight `first`. */
static inline const uint8_t *block_at(const ek_weight_data *w, int row, int first)
{
    return ek_weight_plane_row(w, 0, row) + (size_t)(first / w->type->block) * w->type->block_bytes[0];
}

/* u[i] = src[i] >> shift & mask */
static inline void take(uint8_t *u, const uint8_t *src, int n, int shift, int mask)
{
    for (int i = 0; i < n; i++) u[i] = (uint8_t)(src[i] >> shift & mask);
}

/* u[i] |= (src[i] >> shift & mask) << to */
static inline void add(uint8_t *u, const uint8_t *src, int n, int shift, int mask, int to)
{
    for (int i = 0; i < n; i++) u[i] |= (uint8_t)((src[i] >> shift & mask) << to);
}

/* 16 bytes: the low nibbles are elements 0 to 15, the high ones 16 to 31. */
static inline void nibbles(uint8_t *u, const uint8_t *qs)
{
    take(u, qs, 16, 0, 15);
    take(u + 16, qs, 16, 4, 15);
}

/* u[i] |= bit i of the little-endian word at qh, times 16. */
static inline void fifth_bits(uint8_t *u, const uint8_t *qh)
{
    for (int byte = 0; byte < 4; byte++, u += 8) {
        uint64_t spread = qh[byte] * 0x0101010101010101u & 0x8040201008040201u, codes;
        spread = (spread + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u; /* to the lowest bit of a byte */
        memcpy(&codes, u, 8);
        codes |= spread << 4;
        memcpy(u, &codes, 8);
    }
}

/* An unsigned E4M3 as ggml reads it: the sign is ignored, and 0x7f is 0. */
static inline uint8_t scale_nvfp4(uint8_t byte)
{
    return byte == 0x7f ? 0 : byte & 0x7f;
}

static inline void look_up(uint8_t *u, int n, const int8_t *values)
{
    for (int i = 0; i < n; i++) u[i] = (uint8_t)(values[u[i]] + 128);
}

/* ------------------------------------------------------------------ blocks of 32 */

/* {f16 d; [f16 m;] [u8 qh[4];] u8 qs[16]}: Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL. */
static inline void unpack_32(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b,
                             const bool biased, const bool fifth)
{
    const uint8_t *p = block_at(w, row, first);
    for (int at = 0; at < n; at += 32, u += 32) {
        if (s) *s++ = f16_at(p);
        if (s && biased) *b++ = f16_at(p + 2);
        p += biased ? 4 : 2;
        nibbles(u, p + (fifth ? 4 : 0));
        if (fifth) fifth_bits(u, p), p += 4;
        p += 16;
    }
}

void ek_unpack_q4_0(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    unpack_32(w, row, first, n, u, s, b, false, false);
}

void ek_unpack_q4_1(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    unpack_32(w, row, first, n, u, s, b, true, false);
}

void ek_unpack_q5_0(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    unpack_32(w, row, first, n, u, s, b, false, true);
}

void ek_unpack_q5_1(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    unpack_32(w, row, first, n, u, s, b, true, true);
}

void ek_unpack_iq4_nl(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    unpack_32(w, row, first, n, u, s, b, false, false);
    if (s) look_up(u, n, ek_iq4_values);
}

/* {f16 d; i8 qs[32]} */
void ek_unpack_q8_0(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    (void)b;
    const uint8_t *p = block_at(w, row, first);
    for (int at = 0; at < n; at += 32, u += 32, p += 34) {
        if (s) *s++ = f16_at(p);
        for (int i = 0; i < 32; i++) u[i] = p[2 + i] ^ 128;
    }
}

/* {u8 e; u8 qs[16]}: s = 2^(e - 128), a subnormal for e = 0 and 1. */
void ek_unpack_mxfp4(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    (void)b;
    const uint8_t *p = block_at(w, row, first);
    for (int at = 0; at < n; at += 32, p += 17) {
        if (s) *s++ = ek_e8m0_half(p[0]);
        nibbles(u + at, p + 1);
    }
    if (s) look_up(u, n, ek_e2m1_doubled);
}

/* ------------------------------------------------------------------ blocks of 256 */

/* The 6-bit scales and minima of eight groups of 32, in 12 bytes: Q4_K, Q5_K. */
static inline void scales_6(const uint8_t *p, uint8_t *sc, uint8_t *m)
{
    for (int t = 0; t < 4; t++) {
        sc[t] = p[t] & 63, m[t] = p[t + 4] & 63;
        sc[t + 4] = (uint8_t)((p[t + 8] & 15) | p[t] >> 6 << 4);
        m[t + 4] = (uint8_t)(p[t + 8] >> 4 | p[t + 4] >> 6 << 4);
    }
}

/* {f16 d, dmin; u8 scales[12]; [u8 qh[32];] u8 qs[128]}: 32 bytes of qs are two groups; bit t of qh[l] belongs to
 * element l of group t. */
static inline void unpack_k(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b,
                            const bool fifth)
{
    const uint8_t *p = block_at(w, row, first);
    for (int at = 0; at < n; at += 256, p += fifth ? 176 : 144) {
        const uint8_t *qs = p + (fifth ? 48 : 16);
        const float d = f16_at(p), dmin = f16_at(p + 2);
        if (s) {
            uint8_t sc[8], m[8];
            scales_6(p + 4, sc, m);
            for (int t = 0; t < 8; t++) *s++ = d * (float)sc[t], *b++ = -(dmin * (float)m[t]);
        }
        for (int t = 0; t < 8; t++, u += 32) {
            take(u, qs + t / 2 * 32, 32, t % 2 * 4, 15);
            if (fifth) add(u, p + 16, 32, t, 1, 4);
        }
    }
}

void ek_unpack_q4_k(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    unpack_k(w, row, first, n, u, s, b, false);
}

void ek_unpack_q5_k(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    unpack_k(w, row, first, n, u, s, b, true);
}

/* {u8 ql[128]; u8 qh[64]; i8 scales[16]; f16 d}: halves of 128 elements, each 64 bytes of ql, whose low nibbles come
 * before the high ones, and 32 bytes of qh, two bits at a time. */
void ek_unpack_q6_k(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    (void)b;
    const uint8_t *p = block_at(w, row, first);
    for (int at = 0; at < n; at += 256, p += 210) {
        const float d = f16_at(p + 208);
        for (int g = 0; g < 16 && s; g++) *s++ = d * (float)(int8_t)p[192 + g];
        for (int half = 0; half < 2; half++)
            for (int quarter = 0; quarter < 4; quarter++, u += 32) {
                take(u, p + 64 * half + 32 * (quarter % 2), 32, quarter / 2 * 4, 15);
                add(u, p + 128 + 32 * half, 32, 2 * quarter, 3, 4);
            }
    }
}

/* {u8 scales[16]; u8 qs[64]; f16 d, dmin}: low nibbles of scales are scales, high ones minima; 32 bytes of qs are four
 * quarters of 128 elements, two bits at a time. */
void ek_unpack_q2_k(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    const uint8_t *p = block_at(w, row, first);
    for (int at = 0; at < n; at += 256, p += 84) {
        const float d = f16_at(p + 80), dmin = f16_at(p + 82);
        for (int g = 0; g < 16 && s; g++) *s++ = d * (float)(p[g] & 15), *b++ = -(dmin * (float)(p[g] >> 4));
        for (int t = 0; t < 8; t++, u += 32) take(u, p + 16 + 32 * (t / 4), 32, 2 * (t % 4), 3);
    }
}

/* The 16 scales of Q3_K plus 32: low nibbles in bytes 0 to 7, the two bits above them in bytes 8 to 11. */
static inline int scale_q3_k(const uint8_t *p, int g)
{
    return (p[g % 8] >> g / 8 * 4 & 15) | (p[8 + g % 4] >> g / 4 * 2 & 3) << 4;
}

/* {u8 hmask[32]; u8 qs[64]; u8 scales[12]; f16 d}: two bits as in Q2_K; the third of element l of part t of 32 is bit t
 * of hmask[l], and where it is absent 4 is taken off: codes with zero 4. */
void ek_unpack_q3_k(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    (void)b;
    const uint8_t *p = block_at(w, row, first);
    for (int at = 0; at < n; at += 256, p += 110) {
        const float d = f16_at(p + 108);
        for (int g = 0; g < 16 && s; g++) *s++ = d * (float)(scale_q3_k(p + 96, g) - 32);
        for (int t = 0; t < 8; t++, u += 32) {
            take(u, p + 32 + 32 * (t / 4), 32, 2 * (t % 4), 3);
            add(u, p, 32, t, 1, 2);
        }
    }
}

static inline int scale_iq4_xs(const uint8_t *p, int t)
{
    return (p[4 + t / 2] >> t % 2 * 4 & 15) | ((p[2] | p[3] << 8) >> 2 * t & 3) << 4;
}

/* {f16 d; u16 scales_h; u8 scales_l[4]; u8 qs[128]}: eight groups of 32, each as IQ4_NL; four bits of a scale in
 * scales_l, two in scales_h, minus 32. */
void ek_unpack_iq4_xs(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    (void)b;
    const uint8_t *p = block_at(w, row, first);
    for (int at = 0; at < n; at += 256, p += 136) {
        const float d = f16_at(p);
        for (int t = 0; t < 8; t++) {
            if (s) *s++ = d * (float)(scale_iq4_xs(p, t) - 32);
            nibbles(u + at + 32 * t, p + 8 + 16 * t);
        }
    }
    if (s) look_up(u, n, ek_iq4_values);
}

/* {u8 d[4]; u8 qs[32]}: four groups of 16, a byte of codes is elements j and j + 8 of its group. NVFP4. */
void ek_unpack_nvfp4(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    const float d = ek_e4m3_factor(w);
    (void)b;
    for (int at = 0; at < n; at += 64) {
        const uint8_t *p = block_at(w, row, first + at);
        for (int g = 0; g < 4; g++) {
            if (s) *s++ = d * ek_e4m3_half(scale_nvfp4(p[g]));
            take(u + at + 16 * g, p + 4 + 8 * g, 8, 0, 15);
            take(u + at + 16 * g + 8, p + 4 + 8 * g, 8, 4, 15);
        }
    }
    if (s) look_up(u, n, ek_e2m1_doubled);
}

/* ------------------------------------------------------------------ scales in packed form */

static inline ek_f16 half_at(const uint8_t *p)
{
    return (ek_f16)(p[0] | p[1] << 8);
}

void ek_subscales_32(const ek_weight_data *w, int row, int first, ek_f16 *d, uint8_t *sc, uint8_t *m)
{
    (void)sc, (void)m;
    const uint8_t *p = block_at(w, row, first);
    d[0] = half_at(p);
    if (w->type->biased) d[1] = half_at(p + 2);
}

void ek_subscales_mxfp4(const ek_weight_data *w, int row, int first, ek_f16 *d, uint8_t *sc, uint8_t *m)
{
    (void)d, (void)m;
    *sc = *block_at(w, row, first);
}

void ek_subscales_q45_k(const ek_weight_data *w, int row, int first, ek_f16 *d, uint8_t *sc, uint8_t *m)
{
    const uint8_t *p = block_at(w, row, first);
    d[0] = half_at(p), d[1] = half_at(p + 2);
    scales_6(p + 4, sc, m);
}

void ek_subscales_q2_k(const ek_weight_data *w, int row, int first, ek_f16 *d, uint8_t *sc, uint8_t *m)
{
    (void)m;
    const uint8_t *p = block_at(w, row, first);
    d[0] = half_at(p + 80), d[1] = half_at(p + 82);
    memcpy(sc, p, 16);
}

void ek_subscales_q3_k(const ek_weight_data *w, int row, int first, ek_f16 *d, uint8_t *sc, uint8_t *m)
{
    (void)m;
    const uint8_t *p = block_at(w, row, first);
    *d = half_at(p + 108);
    for (int g = 0; g < 16; g++) sc[g] = (uint8_t)(scale_q3_k(p + 96, g) - 32);
}

void ek_subscales_q6_k(const ek_weight_data *w, int row, int first, ek_f16 *d, uint8_t *sc, uint8_t *m)
{
    (void)m;
    const uint8_t *p = block_at(w, row, first);
    *d = half_at(p + 208);
    memcpy(sc, p + 192, 16);
}

void ek_subscales_iq4_xs(const ek_weight_data *w, int row, int first, ek_f16 *d, uint8_t *sc, uint8_t *m)
{
    (void)m;
    const uint8_t *p = block_at(w, row, first);
    *d = half_at(p);
    for (int t = 0; t < 8; t++) sc[t] = (uint8_t)(scale_iq4_xs(p, t) - 32);
}

void ek_subscales_nvfp4(const ek_weight_data *w, int row, int first, ek_f16 *d, uint8_t *sc, uint8_t *m)
{
    (void)d, (void)m;
    const uint8_t *p = block_at(w, row, first);
    for (int g = 0; g < 4; g++) sc[g] = scale_nvfp4(p[g]);
}
