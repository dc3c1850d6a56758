/* Packs a checkpoint's blocks into planes, and reads them back. */
#include "ops/linear/planes.h"

#include <string.h>

#include "ops/inline.h"
#include "ops/weights/quantised_type.h"

/* ------------------------------------------------------------------ plan */

/* Whether the type's pair of bits and group has kernels. */
static bool has_kernel(const ek_weight_type *t)
{
    if (t->group == 32) return t->book ? t->bits == 4 : t->bits == 4 || t->bits == 5 || t->bits == 8;
    return t->group == 16 && (t->book ? t->bits == 4 : t->bits == 2 || t->bits == 3 || t->bits == 6);
}

ek_err ek_planes_plan(ek_linear *w, const ek_weight_type *type)
{
    if (!has_kernel(type) || type->scale_dtype != EK_F16)
        return ek_fail(EK_EUNSUPPORTED,
                       "%s weights have codes of %d bits and a scale per %d; there are no kernels for that", type->name,
                       type->bits, type->group);
    w->block = type->block, w->scale = type->scale, w->book = type->book;
    w->panel_bytes = ((size_t)(w->k / w->block) * ek_planes_block_bytes(w) + 63) / 64 * 64 + ek_planes_tail_bytes(w);
    return EK_OK;
}

/* ------------------------------------------------------------------ pack */

static inline uint32_t quad_at(const uint8_t *u, int quad)
{
    uint32_t four;
    memcpy(&four, u + 4 * quad, sizeof four);
    return four;
}

/* Writes one plane of 32 codes: `bits` bits from bit `from` of each; to points at output o's bytes. Returns the next
 * plane. */
static inline uint8_t *put_plane(uint8_t *to, const uint8_t *u, const int bits, const int from)
{
    const int per = 8 / bits;
    const uint32_t mask = 0x01010101u * ((1u << bits) - 1);
    for (int quad = 0; quad < EK_UNIT / 4; quad += per, to += 64) {
        uint32_t bytes = 0;
        for (int i = 0; i < per; i++) bytes |= (quad_at(u, quad + i) >> from & mask) << bits * i;
        memcpy(to, &bytes, sizeof bytes);
    }
    return to;
}

static inline void put_unit(uint8_t *to, const uint8_t *u, int bits)
{
    switch (bits) { /* with constants each */
    case 2: put_plane(to, u, 2, 0); break;
    case 3: put_plane(put_plane(to, u, 2, 0), u, 1, 2); break;
    case 4: put_plane(to, u, 4, 0); break;
    case 5: put_plane(put_plane(to, u, 4, 0), u, 1, 4); break;
    case 6: put_plane(put_plane(to, u, 4, 0), u, 2, 4); break;
    default: put_plane(to, u, 8, 0);
    }
}

/* Writes scales and biases of output o in a block, which begins at input `first` of the source's row. False if one is
 * NaN. */
static inline bool put_scales(const ek_linear *w, uint8_t *block, int o, const ek_weight_data *src, int row, int first)
{
    ek_f16 d[2];
    uint8_t sc[EK_UNPACK_WEIGHTS / 16], m[EK_UNPACK_WEIGHTS / 16];
    src->type->subscales(src, row, first, d, sc, m);
    if (w->scale == EK_SCALE_E8M0 || w->scale == EK_SCALE_E4M3) {
        bool finite = true;
        for (int g = 0; g < w->block / w->group; g++) {
            block[EK_PANEL * g + o] = sc[g];
            finite &= sc[g] != 255;
        }
        return finite;
    }
    const int halves = w->biased ? 2 : 1, per_group = w->scale == EK_SCALE_U8 ? 2 : 1;
    for (int i = 0; i < halves; i++) memcpy(block + 2 * (EK_PANEL * i + o), &d[i], 2);
    if (w->scale == EK_SCALE_PLAIN) return true;
    uint8_t *to = block + 2 * EK_PANEL * halves + o;
    for (int g = 0; g < w->block / w->group; g++, to += EK_PANEL * per_group) {
        to[0] = sc[g];
        if (per_group == 2) to[EK_PANEL] = m[g];
    }
    return true;
}

static uint8_t *panel_of(const ek_linear *w, int row)
{
    return ek_linear_panel(w, row / EK_PANEL);
}

static float *factors_of(const ek_linear *w, const uint8_t *panel)
{
    return (float *)(void *)(panel + w->panel_bytes - ek_planes_tail_bytes(w));
}

/* Packs up to EK_UNPACK_WEIGHTS inputs from k on of one output, in whole blocks. False if a scale is NaN. */
static bool pack_some(const ek_linear *w, int to_row, const ek_weight_data *src, int row, int k, int n)
{
    uint8_t u[EK_UNPACK_WEIGHTS + 8];
    const int o = to_row % EK_PANEL, size = w->block, bits = w->bits;
    const size_t block_bytes = ek_planes_block_bytes(w), unit_bytes = ek_planes_unit_bytes(w);
    const size_t codes = ek_planes_scale_bytes(w) + 4 * (size_t)o;
    uint8_t *panel = panel_of(w, to_row), *block = panel + (size_t)(k / size) * block_bytes;
    bool finite = true;
    if (k == 0 && w->scale == EK_SCALE_E4M3) factors_of(w, panel)[o] = ek_e4m3_factor(src);
    src->type->unpack(src, row, k, n, u, NULL, NULL);
    for (int at = 0; at < n; at += size, block += block_bytes) {
        finite &= put_scales(w, block, o, src, row, k + at);
        uint8_t *unit = block + codes;
        for (int i = 0; i < size; i += EK_UNIT, unit += unit_bytes) put_unit(unit, u + at + i, bits);
    }
    return finite;
}

/* Whether a block of the type has scales, then 32 codes in 16 bytes: code i in the low half of byte i, 16 + i in the
 * high half. */
static bool has_nibble_blocks(const ek_weight_type *t)
{
    return t->unpack == ek_unpack_q4_0 || t->unpack == ek_unpack_q4_1 || t->unpack == ek_unpack_iq4_nl ||
           t->unpack == ek_unpack_mxfp4;
}

/* pack_some for such types: halves of bytes are moved four at a time, without a byte per code. */
static bool pack_nibbles(const ek_linear *w, int to_row, const ek_weight_data *src, int row, int k, int n)
{
    const size_t scales = src->type->block_bytes[0] - EK_UNIT / 2, block_bytes = ek_planes_block_bytes(w);
    const int o = to_row % EK_PANEL;
    const uint32_t low = 0x0f0f0f0f;
    const uint8_t *from = ek_weight_plane_row(src, 0, row) + (size_t)(k / EK_UNIT) * (scales + EK_UNIT / 2);
    const size_t codes = ek_planes_scale_bytes(w) + 4 * (size_t)o;
    uint8_t *block = panel_of(w, to_row) + (size_t)(k / EK_UNIT) * block_bytes;
    bool finite = true;
    for (; n > 0; n -= EK_UNIT, block += block_bytes) {
        if (scales == 1) block[o] = *from, finite &= *from != 255;
        else memcpy(block + 2 * o, from, 2);
        if (scales == 4) memcpy(block + 2 * (EK_PANEL + o), from + 2, 2);
        uint32_t in[4], out[4];
        memcpy(in, from += scales, sizeof in);
        from += sizeof in;
        for (int i = 0; i < 4; i += 2) {
            out[i / 2] = (in[i] & low) | (in[i + 1] & low) << 4;
            out[i / 2 + 2] = (in[i] >> 4 & low) | (in[i + 1] & ~low);
        }
        for (int i = 0; i < 4; i++) memcpy(block + codes + 64 * i, &out[i], 4);
    }
    return finite;
}

/* Inlined, because gcc takes a function that only prefetches for one without effect and drops its calls. Prefetches the
 * data for the same row of the next panel, and a 16th of the output of its 16 rows: both are new to the caches, and a
 * panel's rows are too many streams for the hardware prefetcher. */
INLINE void fetch_next(const ek_linear *w, int to_row, const ek_weight_data *src, int row, int k, int n)
{
    const size_t in = (size_t)(n / w->block) * src->type->block_bytes[0];
    const size_t out = (size_t)(n / w->block) * ek_planes_block_bytes(w) / EK_PANEL;
    const uint8_t *from = ek_weight_plane_row(src, 0, row + EK_PANEL) +
                          (size_t)(k / w->block) * src->type->block_bytes[0];
    const uint8_t *to = panel_of(w, to_row) + w->panel_bytes + (size_t)(k / w->block) * ek_planes_block_bytes(w) +
                        (size_t)(to_row % EK_PANEL) * out;
    for (size_t i = 0; i < in; i += 64) __builtin_prefetch(from + i);
    for (size_t i = 0; i < out; i += 64) __builtin_prefetch(to + i, 1);
}

/* Writes zeros for an output past w->n, in the last panel. */
static void clear_output(const ek_linear *w, int o)
{
    const size_t block_bytes = ek_planes_block_bytes(w), scale_bytes = ek_planes_scale_bytes(w);
    uint8_t *block = panel_of(w, w->n);
    static const uint8_t none[EK_PANEL * 4];
    const bool bytes = w->scale == EK_SCALE_E8M0 || w->scale == EK_SCALE_E4M3;
    if (w->scale == EK_SCALE_E4M3) factors_of(w, block)[o] = 0;
    for (int k = 0; k < w->k; k += w->block, block += block_bytes) {
        size_t at = 0, halves = bytes ? 0 : 2 * EK_PANEL * (w->biased ? 2 : 1);
        for (; at < halves; at += 2 * EK_PANEL) memcpy(block + at + (size_t)o * 2, none, 2);
        for (; at < scale_bytes; at += EK_PANEL) block[at + (size_t)o] = 0;
        for (at = scale_bytes; at < block_bytes; at += 64) memcpy(block + at + (size_t)o * 4, none, 4);
    }
}

/* Writes zeros behind the blocks of the panels of rows [row, row + n). */
static void clear_rest(const ek_linear *w, int row, int n)
{
    const size_t used = (size_t)(w->k / w->block) * ek_planes_block_bytes(w);
    for (int p = row / EK_PANEL; p <= (row + n - 1) / EK_PANEL; p++)
        memset(ek_linear_panel(w, p) + used, 0, w->panel_bytes - used - ek_planes_tail_bytes(w));
}

ek_err ek_planes_pack(ek_linear *w, int row, const ek_weight_data *src)
{
    const ek_weight_type *t = src->type;
    if (t->form != w->form || t->bits != w->bits || t->group != w->group || t->block != w->block ||
        t->book != w->book || t->scale != w->scale || t->scale_dtype != w->scale_dtype || t->biased != w->biased)
        return ek_fail(EK_EINVAL, "%s weights cannot be packed into a %d x %d matrix of %d bits in groups of %d",
                       t->name, w->n, w->k, w->bits, w->group);
    const bool nibbles = has_nibble_blocks(t);
    for (int end, r = row; r < row + src->n;
         r = end) { /* one piece of K of a panel after the other, which stay in the cache */
        end = (r / EK_PANEL + 1) * EK_PANEL;
        if (end > row + src->n) end = row + src->n;
        for (int k = 0, n; k < w->k; k += n) {
            n = w->k - k < EK_UNPACK_WEIGHTS ? w->k - k : EK_UNPACK_WEIGHTS;
            for (int i = r; i < end; i++) {
                if (i + EK_PANEL < row + src->n) fetch_next(w, i, src, i - row, k, n);
                if (!(nibbles ? pack_nibbles : pack_some)(w, i, src, i - row, k, n))
                    return ek_fail(EK_EFORMAT, "row %d has a %s scale that is no number", i, t->name);
            }
        }
    }
    clear_rest(w, row, src->n);
    if (row + src->n == w->n && w->n % EK_PANEL)
        for (int o = w->n % EK_PANEL; o < EK_PANEL; o++) clear_output(w, o);
    return EK_OK;
}

/* ------------------------------------------------------------------ back */

/* The inverse of put_plane: bits of 32 codes, from bit `to` of each. Returns the next plane. */
static inline const uint8_t *take_plane(uint8_t *u, const uint8_t *from, const int bits, const int to)
{
    const int per = 8 / bits;
    const uint32_t mask = 0x01010101u * ((1u << bits) - 1);
    for (int quad = 0; quad < EK_UNIT / 4; quad++) {
        uint32_t bytes = (quad_at(from, quad / per * 16) >> quad % per * bits & mask) << to;
        if (to) bytes |= quad_at(u, quad);
        memcpy(u + 4 * quad, &bytes, sizeof bytes);
    }
    return from + 64 * (EK_UNIT / 4 / per);
}

static inline void take_unit(uint8_t *u, const uint8_t *from, int bits)
{
    switch (bits) {
    case 2: take_plane(u, from, 2, 0); break;
    case 3: take_plane(u, take_plane(u, from, 2, 0), 1, 2); break;
    case 4: take_plane(u, from, 4, 0); break;
    case 5: take_plane(u, take_plane(u, from, 4, 0), 1, 4); break;
    case 6: take_plane(u, take_plane(u, from, 4, 0), 2, 4); break;
    default: take_plane(u, from, 8, 0);
    }
}

static float half_at(const uint8_t *p, int i)
{
    ek_f16 h;
    memcpy(&h, p + 2 * i, 2);
    return ek_f16_f32(h);
}

/* Reads scale and bias of output o in group g of a block. */
static void take_scale(const ek_linear *w, const uint8_t *panel, const uint8_t *block, int o, int g, float *s, float *b)
{
    const uint8_t *subs = block + 2 * EK_PANEL * (w->biased ? 2 : 1) + o;
    switch (w->scale) {
    case EK_SCALE_PLAIN:
        *s = half_at(block, o);
        if (w->biased) *b = half_at(block, EK_PANEL + o);
        return;
    case EK_SCALE_E8M0: *s = ek_e8m0_half(block[o]); return;
    case EK_SCALE_E4M3: *s = factors_of(w, panel)[o] * ek_e4m3_half(block[EK_PANEL * g + o]); return;
    case EK_SCALE_I8: *s = half_at(block, o) * (float)(int8_t)subs[EK_PANEL * g]; return;
    case EK_SCALE_U8:
        *s = half_at(block, o) * (float)subs[EK_PANEL * 2 * g];
        *b = -(half_at(block, EK_PANEL + o) * (float)subs[EK_PANEL * (2 * g + 1)]);
        return;
    default:
        *s = half_at(block, o) * (float)(subs[EK_PANEL * g] & 15);
        *b = -(half_at(block, EK_PANEL + o) * (float)(subs[EK_PANEL * g] >> 4));
    }
}

void ek_planes_read(const ek_linear *w, const uint8_t *panel, int o, int k, int n, int8_t *c, float *s, float *b)
{
    const size_t block_bytes = ek_planes_block_bytes(w), unit_bytes = ek_planes_unit_bytes(w);
    const uint8_t *block = panel + (size_t)(k / w->block) * block_bytes;
    for (int at = 0; at < n; at += w->block, block += block_bytes) {
        for (int g = 0; g < w->block / w->group; g++) take_scale(w, panel, block, o, g, s++, b++);
        const uint8_t *unit = block + ek_planes_scale_bytes(w) + 4 * o;
        for (int i = 0; i < w->block; i += EK_UNIT, unit += unit_bytes, c += EK_UNIT) {
            uint8_t u[EK_UNIT];
            take_unit(u, unit, w->bits);
            for (int j = 0; j < EK_UNIT; j++) c[j] = (int8_t)(w->book ? w->book[u[j]] : u[j] - w->zero);
        }
    }
}

void ek_planes_row(const ek_linear *w, int row, float *out)
{
    int8_t c[EK_KBLOCK_Q];
    float s[EK_KBLOCK_Q / 16], b[EK_KBLOCK_Q / 16];
    for (int k = 0, n; k < w->k; k += n) {
        n = w->k - k < EK_KBLOCK_Q ? w->k - k : EK_KBLOCK_Q;
        ek_planes_read(w, panel_of(w, row), row % EK_PANEL, k, n, c, s, b);
        for (int i = 0; i < n; i++)
            *out++ = ek_weight_value(c[i] + w->zero, w->zero, s[i / w->group], w->biased, b[i / w->group]);
    }
}
