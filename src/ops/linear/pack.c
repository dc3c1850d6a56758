/* Packs a checkpoint's rows into panels, and reads one row back. */
#include <string.h>

#include "ops/linear/planes.h"

static uint8_t *panel_of(const ek_linear *w, int row)
{
    return ek_linear_panel(w, row / EK_PANEL);
}

/* ------------------------------------------------------------------ Form F */

static size_t element_bytes(const ek_linear *w)
{
    return w->form == EK_W_F32 ? 4 : 2;
}

static void put_row_2(uint16_t *panel, const uint8_t *src, int k)
{
    for (int i = 0; i < k; i++) memcpy(panel + (size_t)i * EK_PANEL, src + 2 * (size_t)i, 2);
}

static void put_row_4(float *panel, const ek_weight_data *src, int row)
{
    float values[EK_UNPACK_WEIGHTS];
    for (int k = 0, n; k < src->k; k += n, panel += (size_t)n * EK_PANEL) {
        n = src->k - k < EK_UNPACK_WEIGHTS ? src->k - k : EK_UNPACK_WEIGHTS;
        ek_weight_row(src, row, k, n, values);
        for (int i = 0; i < n; i++) panel[(size_t)i * EK_PANEL] = values[i];
    }
}

/* Values whose type is bf16 but that are stored in another form. */
static void put_row_bf16(ek_bf16 *panel, const ek_weight_data *src, int row)
{
    float values[EK_UNPACK_WEIGHTS];
    for (int k = 0, n; k < src->k; k += n, panel += (size_t)n * EK_PANEL) {
        n = src->k - k < EK_UNPACK_WEIGHTS ? src->k - k : EK_UNPACK_WEIGHTS;
        ek_weight_row(src, row, k, n, values);
        for (int i = 0; i < n; i++) panel[(size_t)i * EK_PANEL] = (ek_bf16)(ek_f32_bits(values[i]) >> 16);
    }
}

/* Zeroes the bytes after the elements of the panels of rows [row, row + n_rows), and the outputs past n. */
static void clear_rest_f(const ek_linear *w, int row, int n_rows)
{
    size_t size = element_bytes(w), used = (size_t)w->k * EK_PANEL * size;
    for (int r = w->n; row + n_rows == w->n && r < w->n_panels * EK_PANEL; r++) {
        uint8_t *at = panel_of(w, r) + (size_t)(r % EK_PANEL) * size;
        for (int i = 0; i < w->k; i++) memset(at + (size_t)i * EK_PANEL * size, 0, size);
    }
    for (int p = row / EK_PANEL; p <= (row + n_rows - 1) / EK_PANEL; p++)
        memset(ek_linear_panel(w, p) + used, 0, w->panel_bytes - used);
}

static ek_err pack_f(ek_linear *w, int row, const ek_weight_data *src)
{
    if (w->form != EK_W_F32 && src->type->form != w->form)
        return ek_fail(EK_EINVAL, "%s weights cannot be packed exactly into form %d of a %d x %d matrix",
                       src->type->name, (int)w->form, w->n, w->k);
    for (int r = 0; r < src->n; r++) {
        uint8_t *to = panel_of(w, row + r) + (size_t)((row + r) % EK_PANEL) * element_bytes(w);
        if (w->form == EK_W_F32) put_row_4((float *)to, src, r);
        else if (w->form == EK_W_BF16 && src->type->stored != EK_BF16) put_row_bf16((ek_bf16 *)(void *)to, src, r);
        else put_row_2((uint16_t *)to, ek_weight_plane_row(src, 0, r), w->k);
    }
    clear_rest_f(w, row, src->n);
    return EK_OK;
}

/* ------------------------------------------------------------------ Form Q */

enum { MAX_GROUP = 128 };

/* Writes codes into the four bytes of output o in each vector of a group; `shift` turns them into stored codes. Eight
 * codes at once, in a byte each. */
static inline void put_codes(uint8_t *group, int o, const uint8_t *u, int n, int shift, const bool q8)
{
    uint8_t *to = group + o * 4;
    const uint64_t shifts = (uint64_t)shift * 0x0101010101010101u;
    for (int k = 0; k < n; k += 8, to += q8 ? 128 : 64) {
        uint64_t v;
        memcpy(&v, u + k, 8);
        v += shifts; /* stored codes fit a byte, so nothing carries */
        uint32_t quad = (uint32_t)v, next = (uint32_t)(v >> 32);
        if (!q8) quad |= next << 4;
        memcpy(to, &quad, 4);
        if (q8) memcpy(to + 64, &next, 4);
    }
}

static void put_scale(const ek_linear *w, uint8_t *group, int i, float value)
{
    uint8_t *at = group + ek_linear_code_bytes(w);
    if (w->scale_dtype == EK_BF16) ((ek_bf16 *)at)[i] = (ek_bf16)(ek_f32_bits(value) >> 16);
    else ((float *)at)[i] = value;
}

/* Writes zeros behind the scales of every group of the panels of rows [row, row + n_rows), and centred zeros with scale
 * 0 for the outputs past n. */
static void clear_rest_q(const ek_linear *w, int row, int n_rows)
{
    size_t group_bytes = ek_linear_group_bytes(w);
    size_t used = ek_linear_code_bytes(w) + EK_PANEL * ek_dtype_size(w->scale_dtype) * (w->biased ? 2 : 1);
    static const uint8_t none[MAX_GROUP];
    for (int p = row / EK_PANEL; p <= (row + n_rows - 1) / EK_PANEL; p++)
        for (int g = 0; g < w->k / w->group; g++) {
            uint8_t *group = ek_linear_panel(w, p) + (size_t)g * group_bytes;
            memset(group + used, 0, group_bytes - used);
            if (row + n_rows < w->n || p < w->n_panels - 1) continue;
            for (int o = (w->n - 1) % EK_PANEL + 1; o < EK_PANEL; o++) {
                put_codes(group, o, none, w->group, ek_linear_stored_zero(w), w->form == EK_W_Q8);
                put_scale(w, group, o, 0);
                if (w->biased) put_scale(w, group, EK_PANEL + o, 0);
            }
        }
}

static inline void pack_row_q(const ek_linear *w, int row, const ek_weight_data *src, int from, const bool q8)
{
    const ek_weight_type *t = src->type;
    const size_t group_bytes = ek_linear_group_bytes(w);
    const int o = row % EK_PANEL, shift = ek_linear_stored_zero(w) - w->zero;
    uint8_t *group = panel_of(w, row), u[EK_UNPACK_WEIGHTS + 8];
    float s[EK_UNPACK_WEIGHTS / 32], b[EK_UNPACK_WEIGHTS / 32];
    for (int k = 0, n; k < w->k; k += n) {
        n = w->k - k < EK_UNPACK_WEIGHTS ? w->k - k : EK_UNPACK_WEIGHTS;
        t->unpack(src, from, k, n, u, s, b);
        for (int g = 0; g < n / w->group; g++, group += group_bytes) {
            put_codes(group, o, u + g * w->group, w->group, shift, q8);
            put_scale(w, group, o, s[g]);
            if (w->biased) put_scale(w, group, EK_PANEL + o, b[g]);
        }
    }
}

/* Whether the packed form preserves the type's values. */
static bool holds(const ek_linear *w, const ek_weight_type *t)
{
    return t->form == w->form && t->bits == w->bits && t->group == w->group && t->biased == w->biased &&
           (t->scale_dtype == w->scale_dtype || w->scale_dtype == EK_F32);
}

static ek_err pack_q(ek_linear *w, int row, const ek_weight_data *src)
{
    const ek_weight_type *t = src->type;
    if (!holds(w, t))
        return ek_fail(EK_EINVAL,
                       "%s weights with %s scales%s cannot be packed exactly into a %d x %d matrix of %d bits in "
                       "groups of %d with %s scales%s",
                       t->name, ek_dtype_name(t->scale_dtype), t->biased ? " and biases" : "", w->n, w->k, w->bits,
                       w->group, ek_dtype_name(w->scale_dtype), w->biased ? " and biases" : "");
    for (int r = 0; r < src->n; r++)
        if (w->form == EK_W_Q8) pack_row_q(w, row + r, src, r, true);
        else pack_row_q(w, row + r, src, r, false);
    clear_rest_q(w, row, src->n);
    return EK_OK;
}

ek_err ek_linear_pack(ek_linear *w, int row, const ek_weight_data *src)
{
    if (row < 0 || src->n < 1 || src->n > w->n - row || src->k != w->k)
        return ek_fail(EK_EINVAL, "%d rows of %d weights from row %d on do not lie in a %d x %d matrix", src->n, src->k,
                       row, w->n, w->k);
    EK_ASSERT(w->data || w->parts);
    if (w->form == EK_W_PLANES) return ek_planes_pack(w, row, src);
    return ek_wform_is_q(w->form) ? pack_q(w, row, src) : pack_f(w, row, src);
}

/* ------------------------------------------------------------------ numbers */

/* Whether one of n values is infinite or NaN: all bits of its exponent are set. */
static bool some_odd(const uint8_t *at, size_t n, ek_dtype type)
{
    const uint32_t e = type == EK_F32 ? 0x7f800000 : type == EK_BF16 ? 0x7f80 : 0x7c00;
    unsigned odd = 0;
    if (type == EK_F32)
        for (size_t i = 0; i < n; i++) {
            uint32_t u;
            memcpy(&u, at + 4 * i, 4);
            odd |= (u & e) == e;
        }
    else
        for (size_t i = 0; i < n; i++) {
            uint16_t u;
            memcpy(&u, at + 2 * i, 2);
            odd |= (u & e) == e;
        }
    return odd;
}

/* The first output of a panel with an odd value among n times 16, or EK_PANEL. */
static int first_odd(const uint8_t *at, size_t n, ek_dtype type)
{
    const size_t size = ek_dtype_size(type);
    int first = EK_PANEL;
    for (size_t i = 0; i < n; i++)
        for (int o = 0; o < first; o++)
            if (some_odd(at + (i * EK_PANEL + (size_t)o) * size, 1, type)) first = o;
    return first;
}

int ek_linear_odd_row(const ek_linear *w, int row, int n)
{
    if (w->form == EK_W_PLANES) return -1; /* ek_planes_pack has refused it */
    const bool q = ek_wform_is_q(w->form);
    const ek_dtype type = q ? w->scale_dtype : w->form == EK_W_F32 ? EK_F32 : w->form == EK_W_BF16 ? EK_BF16 : EK_F16;
    const size_t each = q ? (w->biased ? 2 : 1) : (size_t)w->k, step = q ? ek_linear_group_bytes(w) : 0;
    for (int p = row / EK_PANEL; p <= (row + n - 1) / EK_PANEL; p++) {
        const uint8_t *at = ek_linear_panel(w, p) + (q ? ek_linear_code_bytes(w) : 0);
        int first = EK_PANEL;
        for (int g = 0; g < (q ? w->k / w->group : 1); g++, at += step)
            if (some_odd(at, each * EK_PANEL, type)) {
                const int o = first_odd(at, each, type);
                if (o < first) first = o;
            }
        if (first < EK_PANEL) return p * EK_PANEL + first;
    }
    return -1;
}

/* ------------------------------------------------------------------ one row back */

static void row_q(const ek_linear *w, int row, float *out)
{
    const uint8_t *group = panel_of(w, row);
    size_t group_bytes = ek_linear_group_bytes(w);
    int o = row % EK_PANEL;
    for (int g = 0; g < w->k / w->group; g++, group += group_bytes) {
        float s = ek_linear_scale(w, group, o), b = w->biased ? ek_linear_scale(w, group, EK_PANEL + o) : 0;
        for (int k = 0; k < w->group; k++)
            *out++ = ek_weight_value(ek_linear_code(w, group, o, k) + w->zero, w->zero, s, w->biased, b);
    }
}

void ek_linear_row(const ek_linear *w, int row, float *out)
{
    EK_ASSERT(row >= 0 && row < w->n);
    if (ek_wform_is_q(w->form)) {
        if (w->form == EK_W_PLANES) ek_planes_row(w, row, out);
        else row_q(w, row, out);
        return;
    }
    const uint8_t *panel = panel_of(w, row) + (size_t)(row % EK_PANEL) * element_bytes(w);
    for (int k = 0; k < w->k; k++, panel += EK_PANEL * element_bytes(w)) {
        uint32_t u = 0;
        memcpy(&u, panel, element_bytes(w));
        out[k] = w->form == EK_W_F32    ? ek_bits_f32(u)
                 : w->form == EK_W_BF16 ? ek_bf16_f32((ek_bf16)u)
                                        : ek_f16_f32((ek_f16)u);
    }
}
