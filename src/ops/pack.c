/* From a checkpoint's rows to panels, and one row back. */
#include <math.h>
#include <string.h>

#include "ops/linear_layout.h"

static ek_err check_rows(const ek_linear *w, int row, int n_rows)
{
    if (row < 0 || n_rows < 1 || n_rows > w->n - row)
        return ek_fail(EK_EINVAL, "%d rows from row %d do not lie in a %d x %d matrix", n_rows, row, w->n, w->k);
    EK_ASSERT(w->data);
    return EK_OK;
}

static uint8_t *panel_of(const ek_linear *w, int row)
{
    return w->data + (size_t)(row / EK_PANEL) * w->panel_bytes;
}

static float load_any(const void *src, size_t i, ek_dtype t)
{
    uint32_t u = 0;
    memcpy(&u, (const uint8_t *)src + i * ek_dtype_size(t), ek_dtype_size(t));
    return t == EK_F32 ? ek_bits_f32(u) : t == EK_BF16 ? ek_bf16_f32((ek_bf16)u) : ek_f16_f32((ek_f16)u);
}

/* ------------------------------------------------------------------ Form F */

static ek_dtype dtype_of(ek_wform form)
{
    return form == EK_W_F32 ? EK_F32 : form == EK_W_F16 ? EK_F16 : EK_BF16;
}

static void put_row_2(uint16_t *panel, const uint8_t *src, int k)
{
    for (int i = 0; i < k; i++) memcpy(panel + (size_t)i * EK_PANEL, src + 2 * (size_t)i, 2);
}

static void put_row_4(float *panel, const uint8_t *src, int k, ek_dtype t)
{
    for (int i = 0; i < k; i++) panel[(size_t)i * EK_PANEL] = load_any(src, (size_t)i, t);
}

static void clear_row_f(const ek_linear *w, int row)
{
    size_t size = ek_dtype_size(dtype_of(w->form));
    uint8_t *at = panel_of(w, row) + (size_t)(row % EK_PANEL) * size;
    for (int i = 0; i < w->k; i++) memset(at + (size_t)i * EK_PANEL * size, 0, size);
}

ek_err ek_linear_pack_float(ek_linear *w, int row, int n_rows, const void *src, ek_dtype src_dtype)
{
    EK_TRY(check_rows(w, row, n_rows));
    if (ek_wform_is_q(w->form) || (src_dtype != EK_F32 && src_dtype != EK_F16 && src_dtype != EK_BF16) ||
        (w->form != EK_W_F32 && src_dtype != dtype_of(w->form)))
        return ek_fail(EK_EINVAL, "%s weights cannot be packed exactly into form %d of a %d x %d matrix",
                       ek_dtype_name(src_dtype), (int)w->form, w->n, w->k);
    size_t row_bytes = (size_t)w->k * ek_dtype_size(src_dtype), size = ek_dtype_size(dtype_of(w->form));
    const uint8_t *from = src;
    for (int r = row; r < row + n_rows; r++, from += row_bytes) {
        uint8_t *to = panel_of(w, r) + (size_t)(r % EK_PANEL) * size;
        if (size == 2) put_row_2((uint16_t *)to, from, w->k);
        else put_row_4((float *)to, from, w->k, src_dtype);
    }
    if (row + n_rows < w->n) return EK_OK;
    for (int r = w->n; r < w->n_panels * EK_PANEL; r++) clear_row_f(w, r);
    size_t used = (size_t)w->k * EK_PANEL * size;
    for (int p = 0; p < w->n_panels; p++) memset(w->data + (size_t)p * w->panel_bytes + used, 0, w->panel_bytes - used);
    return EK_OK;
}

/* ------------------------------------------------------------------ Form Q */

enum { MAX_GROUP = 128 };

/* The codes of one row's group: 8 codes are `bits` whole bytes of the little-endian string. */
static void unpack_codes(uint8_t *u, const uint8_t *src, int n, int bits)
{
    for (int i = 0; i < n; i += 8, src += bits) {
        uint64_t word = 0;
        memcpy(&word, src, (size_t)bits);
        for (int j = 0; j < 8; j++) u[i + j] = (uint8_t)(word >> j * bits & ((1u << bits) - 1));
    }
}

/* Writes codes into the four bytes of output o in each vector of a group; shift makes them
 * what is stored. */
static void put_codes(const ek_linear *w, uint8_t *group, int o, const uint8_t *u, int shift)
{
    uint8_t *to = group + o * 4;
    if (w->form == EK_W_Q8) {
        for (int k = 0; k < w->group; k += 4, to += 64)
            for (int j = 0; j < 4; j++) to[j] = (uint8_t)(u[k + j] + shift);
        return;
    }
    for (int k = 0; k < w->group; k += 8, to += 64)
        for (int j = 0; j < 4; j++) to[j] = (uint8_t)((u[k + j] + shift) | (u[k + 4 + j] + shift) << 4);
}

/* The same straight from the source where it holds what is stored: bytes as they are, or eight
 * nibbles of which k and k + 4 share a byte. Loading a model is mostly this. */
static void copy_codes(const ek_linear *w, uint8_t *group, int o, const uint8_t *src)
{
    uint8_t *to = group + o * 4, *end = to + ek_linear_code_bytes(w);
    for (; to < end; to += 64, src += 4) {
        uint32_t u;
        memcpy(&u, src, 4);
        if (w->form == EK_W_Q4) {
            uint32_t lo = u & 0xffff, hi = u >> 16;
            lo = (lo | lo << 8) & 0x00ff00ffu;
            hi = (hi | hi << 8) & 0x00ff00ffu;
            u = ((lo | lo << 4) & 0x0f0f0f0fu) | ((hi | hi << 4) & 0x0f0f0f0fu) << 4;
        }
        memcpy(to, &u, 4);
    }
}

static void put_scale(const ek_linear *w, uint8_t *group, int i, float value)
{
    uint8_t *at = group + ek_linear_code_bytes(w);
    if (w->scale_dtype == EK_BF16) ((ek_bf16 *)at)[i] = (ek_bf16)(ek_f32_bits(value) >> 16);
    else ((float *)at)[i] = value;
}

static float get_scale(const ek_linear *w, const uint8_t *group, int i)
{
    const uint8_t *at = group + ek_linear_code_bytes(w);
    return w->scale_dtype == EK_BF16 ? ek_bf16_f32(((const ek_bf16 *)at)[i]) : ((const float *)at)[i];
}

/* Zeros behind the scales of every group of the panels of rows [row, row + n_rows), and
 * centred zeros with scale 0 for the outputs past n. */
static void clear_rest(const ek_linear *w, int row, int n_rows)
{
    size_t group_bytes = ek_linear_group_bytes(w);
    size_t used = ek_linear_code_bytes(w) + EK_PANEL * ek_dtype_size(w->scale_dtype) * (w->biased ? 2 : 1);
    static const uint8_t none[MAX_GROUP];
    for (int p = row / EK_PANEL; p <= (row + n_rows - 1) / EK_PANEL; p++)
        for (int g = 0; g < w->k / w->group; g++) {
            uint8_t *group = w->data + (size_t)p * w->panel_bytes + (size_t)g * group_bytes;
            memset(group + used, 0, group_bytes - used);
            if (row + n_rows < w->n || p < w->n_panels - 1) continue;
            for (int o = (w->n - 1) % EK_PANEL + 1; o < EK_PANEL; o++) {
                put_codes(w, group, o, none, ek_linear_stored_zero(w));
                put_scale(w, group, o, 0);
                if (w->biased) put_scale(w, group, EK_PANEL + o, 0);
            }
        }
}

ek_err ek_linear_pack_affine(ek_linear *w, int row, int n_rows, const void *codes, const void *scales,
                             const void *biases, ek_dtype scale_dtype)
{
    EK_TRY(check_rows(w, row, n_rows));
    if (!ek_wform_is_q(w->form))
        return ek_fail(EK_EINVAL, "quantised weights for form %d of a %d x %d matrix", (int)w->form, w->n, w->k);
    if (scale_dtype != w->scale_dtype && (w->scale_dtype != EK_F32 || scale_dtype > EK_BF16))
        return ek_fail(EK_EINVAL, "%s scales cannot be kept exactly as the %s of a %d x %d matrix",
                       ek_dtype_name(scale_dtype), ek_dtype_name(w->scale_dtype), w->n, w->k);
    if (w->biased != !!biases)
        return ek_fail(EK_EINVAL, "biases are %s for a %d x %d matrix that has %s", biases ? "given" : "missing", w->n,
                       w->k, w->biased ? "them" : "none");
    int groups = w->k / w->group, shift = ek_linear_stored_zero(w) - w->zero;
    size_t code_bytes = (size_t)w->group / 8 * (size_t)w->bits, group_bytes = ek_linear_group_bytes(w);
    bool as_stored = shift == 0 && w->bits == (w->form == EK_W_Q4 ? 4 : 8);
    const uint8_t *from = codes;
    uint8_t u[MAX_GROUP];
    for (int r = 0; r < n_rows; r++) {
        uint8_t *group = panel_of(w, row + r);
        int o = (row + r) % EK_PANEL;
        for (int g = 0; g < groups; g++, group += group_bytes, from += code_bytes) {
            size_t at = (size_t)r * (size_t)groups + (size_t)g;
            if (as_stored) {
                copy_codes(w, group, o, from);
            } else {
                unpack_codes(u, from, w->group, w->bits);
                put_codes(w, group, o, u, shift);
            }
            put_scale(w, group, o, load_any(scales, at, scale_dtype));
            if (biases) put_scale(w, group, EK_PANEL + o, load_any(biases, at, scale_dtype));
        }
    }
    clear_rest(w, row, n_rows);
    return EK_OK;
}

/* A weight's value: the one place that says it. */
static inline float value(int u, int zero, float s, bool biased, float b)
{
    return biased ? fmaf(s, (float)u, b) : s * (float)(u - zero);
}

ek_err ek_linear_pack_widened(ek_linear *w, int row, int n_rows, const void *codes, const void *scales,
                              const void *biases, ek_dtype scale_dtype, int bits, int group)
{
    ek_linear shape; /* only to check the source as pack_affine would */
    EK_TRY(check_rows(w, row, n_rows));
    EK_TRY(ek_linear_plan_affine(&shape, 0, w->n, w->k, bits, group, scale_dtype, biases != NULL));
    if (w->form != EK_W_F32)
        return ek_fail(EK_EINVAL, "quantised weights widen to F32 only, not form %d of a %d x %d matrix", (int)w->form,
                       w->n, w->k);
    int groups = w->k / group;
    const uint8_t *from = codes;
    uint8_t u[MAX_GROUP];
    for (int r = 0; r < n_rows; r++) {
        float *to = (float *)panel_of(w, row + r) + (row + r) % EK_PANEL;
        for (int g = 0; g < groups; g++, from += group / 8 * bits) {
            size_t at = (size_t)r * (size_t)groups + (size_t)g;
            float s = load_any(scales, at, scale_dtype), b = biases ? load_any(biases, at, scale_dtype) : 0;
            unpack_codes(u, from, group, bits);
            for (int i = 0; i < group; i++, to += EK_PANEL) *to = value(u[i], shape.zero, s, biases != NULL, b);
        }
    }
    if (row + n_rows == w->n)
        for (int r = w->n; r < w->n_panels * EK_PANEL; r++) clear_row_f(w, r);
    return EK_OK;
}

/* ------------------------------------------------------------------ one row back */

static void row_q(const ek_linear *w, int row, float *out)
{
    const uint8_t *group = panel_of(w, row);
    size_t group_bytes = ek_linear_group_bytes(w);
    int o = row % EK_PANEL, shift = ek_linear_stored_zero(w) - w->zero;
    for (int g = 0; g < w->k / w->group; g++, group += group_bytes) {
        float s = get_scale(w, group, o), b = w->biased ? get_scale(w, group, EK_PANEL + o) : 0;
        for (int k = 0; k < w->group; k++) {
            int at = o * 4 + k % 4, quad = k / 4;
            int u = w->form == EK_W_Q8 ? group[quad * 64 + at] : group[quad / 2 * 64 + at] >> (quad & 1) * 4 & 15;
            *out++ = value(u - shift, w->zero, s, w->biased, b);
        }
    }
}

void ek_linear_row(const ek_linear *w, int row, float *out)
{
    EK_ASSERT(row >= 0 && row < w->n);
    if (ek_wform_is_q(w->form)) {
        row_q(w, row, out);
        return;
    }
    const uint8_t *panel = panel_of(w, row);
    for (int k = 0; k < w->k; k++)
        out[k] = load_any(panel, (size_t)k * EK_PANEL + (size_t)(row % EK_PANEL), dtype_of(w->form));
}
