#include "lib/product.h"

#include <stdio.h>
#include <string.h>

#include "ops/weights/quantised_type.h"

static const struct {
    const char *name;
    int bits, group;
} modes[] = {[EK_AFFINE] = {"affine", 4, 64},
             [EK_MXFP4] = {"mxfp4", 4, 32},
             [EK_MXFP8] = {"mxfp8", 8, 32},
             [EK_NVFP4] = {"nvfp4", 4, 16}};

/* ------------------------------------------------------------------ checks */

static ek_err check_mode(lib_quant *q, const ek_qview *v, const char *what)
{
    if ((unsigned)v->mode >= sizeof modes / sizeof *modes)
        return ek_fail(EK_EINVAL, "%s has the unknown quantisation mode %d", what, (int)v->mode);
    const char *name = modes[v->mode].name;
    *q = (lib_quant){.mode = v->mode,
                     .bits = v->bits ? v->bits : modes[v->mode].bits,
                     .group = v->group ? v->group : modes[v->mode].group,
                     .global = 1};
    bool bits_ok = q->bits >= 2 && q->bits <= 8 && q->bits != 7,
         group_ok = q->group == 32 || q->group == 64 || q->group == 128;
    if (v->mode != EK_AFFINE) bits_ok = q->bits == modes[v->mode].bits, group_ok = q->group == modes[v->mode].group;
    if (!bits_ok || !group_ok)
        return ek_fail(EK_EINVAL, "%s: mode %s does not have %d bits in groups of %d (%s)", what, name, q->bits,
                       q->group,
                       v->mode == EK_AFFINE  ? "2, 3, 4, 5, 6, 8 bits; 32, 64, 128"
                       : v->mode == EK_NVFP4 ? "4 bits; 16"
                       : v->mode == EK_MXFP4 ? "4 bits; 32"
                                             : "8 bits; 32");
    if (v->global_scale != 0 && v->mode != EK_NVFP4)
        return ek_fail(EK_EINVAL, "%s: only nvfp4 has a scale for the whole tensor, this is %s", what, name);
    if (v->global_scale != 0 && !(v->global_scale > 0 && v->global_scale < 0x1p127f))
        return ek_fail(EK_EINVAL, "%s: the scale of the whole tensor, %g, is not a positive number", what,
                       (double)v->global_scale);
    if (v->global_scale > 0) q->global = v->global_scale / 2688.0f; /* 448 * 6 */
    return EK_OK;
}

/* part: scales or biases. */
static ek_err check_part(const lib_quant *q, const lib_view *part, const char *what, const char *name)
{
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT];
    const lib_view *codes = &q->codes;
    bool fits = part->n_dims == codes->n_dims && lib_dim(part, 1) * q->group == q->cols &&
                memcmp(part->dim, codes->dim, sizeof part->dim[0] * (size_t)(codes->n_dims - 1)) == 0;
    if (!fits)
        return ek_fail(EK_EINVAL, "%s: %s %s do not fit codes %s: %d bits in groups of %d", what, name,
                       lib_shape(a, part), lib_shape(b, codes), q->bits, q->group);
    if (q->mode == EK_AFFINE ? !lib_is_float(part->type) : part->type != EK_TYPE_U8)
        return ek_fail(EK_EINVAL, "%s: %s %s of mode %s must be %s", what, name, lib_shape(a, part),
                       modes[q->mode].name, q->mode == EK_AFFINE ? "f32, f16 or bf16" : "u8");
    return EK_OK;
}

ek_err lib_quant_check(lib_quant *q, const ek_qview *v, const char *what)
{
    char part[64], a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT];
    if (!v) return ek_fail(EK_EINVAL, "%s is missing", what);
    EK_TRY(check_mode(q, v, what));
    snprintf(part, sizeof part, "codes of %s", what);
    EK_TRY(lib_view_check(&q->codes, &v->codes, part));
    snprintf(part, sizeof part, "scales of %s", what);
    EK_TRY(lib_view_check(&q->scales, &v->scales, part));
    if ((q->codes.type != EK_TYPE_U32 && q->codes.type != EK_TYPE_U8) || q->codes.n_dims < 2)
        return ek_fail(EK_EINVAL, "codes %s of %s must be u32 or u8 with 2 dims or more; scales are %s",
                       lib_shape(a, &q->codes), what, lib_shape(b, &q->scales));
    int64_t bits = lib_dim(&q->codes, 1) * (q->codes.type == EK_TYPE_U32 ? 32 : 8);
    q->rows = lib_dim(&q->codes, 2);
    q->cols = bits / q->bits;
    if (bits % q->bits || q->cols % q->group)
        return ek_fail(EK_EINVAL, "%s: codes %s do not hold whole groups of %d elements of %d bits; scales are %s",
                       what, lib_shape(a, &q->codes), q->group, q->bits, lib_shape(b, &q->scales));
    EK_TRY(check_part(q, &q->scales, what, "scales"));
    if (q->mode != EK_AFFINE) return EK_OK;
    snprintf(part, sizeof part, "biases of %s", what);
    EK_TRY(lib_view_check(&q->biases, &v->biases, part));
    EK_TRY(check_part(q, &q->biases, what, "biases"));
    if (q->biases.type != q->scales.type)
        return ek_fail(EK_EINVAL, "%s: scales %s and biases %s have different types", what, lib_shape(a, &q->scales),
                       lib_shape(b, &q->biases));
    return EK_OK;
}

ek_err lib_quant_settle(lib_call *c, lib_quant *q)
{
    int64_t size = (int64_t)lib_type_size(q->codes.type);
    if (lib_dim(&q->codes, 1) <= 1 || lib_stride(&q->codes, 1) == size) return EK_OK;
    /* a last dim of stride 0 also has to become dense */
    lib_view row = q->codes;
    if (lib_stride(&row, 1) != 0) return lib_make_dense(c, &q->codes);
    int64_t n = lib_dim(&row, 1), rows = row.count / n;
    uint8_t *to = lib_take(c, (size_t)(row.count * size));
    if (!to) return EK_ENOMEM;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++)
            memcpy(to + (r * n + i) * size, row.data + lib_offset(&row, row.n_dims - 1, r), (size_t)size);
    q->codes.data = to;
    for (int i = row.n_dims - 1; i >= 0; i--) {
        q->codes.stride[i] = size;
        size *= row.dim[i];
    }
    return EK_OK;
}

lib_matrix lib_matrix_of(const lib_quant *q, bool transposed)
{
    return (lib_matrix){.kind = LIB_QUANTISED,
                        .n = transposed ? q->rows : q->cols,
                        .k = transposed ? q->cols : q->rows,
                        .transposed = transposed,
                        .mode = q->mode,
                        .bits = q->bits,
                        .group = q->group,
                        .type = q->scales.type,
                        .codes = q->codes.data,
                        .scales = q->scales.data,
                        .biases = q->biases.data,
                        .code_row = lib_stride(&q->codes, 2),
                        .scale_row = lib_stride(&q->scales, 2),
                        .scale_step = lib_stride(&q->scales, 1),
                        .bias_row = q->mode == EK_AFFINE ? lib_stride(&q->biases, 2) : 0,
                        .bias_step = q->mode == EK_AFFINE ? lib_stride(&q->biases, 1) : 0,
                        .global = q->global};
}

/* ------------------------------------------------------------------ values */

static void decode_fp(const lib_matrix *m, const uint8_t *codes, int n, unsigned scale_byte, float *to)
{
    float s = m->mode == EK_NVFP4 ? ek_e4m3_f32(scale_byte) : ek_e8m0_f32(scale_byte);
    if (m->mode == EK_MXFP8) {
        for (int i = 0; i < n; i++) to[i] = ek_e4m3_f32(codes[i]) * s * m->global;
        return;
    }
    float value[16];
    for (unsigned u = 0; u < 16; u++) value[u] = ek_e2m1_f32(u) * s * m->global;
    for (int i = 0; i < n; i += 2) to[i] = value[codes[i / 2] & 15], to[i + 1] = value[codes[i / 2] >> 4];
}

void lib_decode(const lib_kernels *k, const lib_matrix *m, int64_t row, int64_t c, int64_t n, float *to)
{
    const uint8_t *codes = m->codes + row * m->code_row + c * m->bits / 8;
    while (n > 0) {
        int64_t g = c / m->group, left = (g + 1) * m->group - c;
        int part = (int)(n < left ? n : left);
        const uint8_t *s = m->scales + row * m->scale_row + g * m->scale_step;
        if (m->mode == EK_AFFINE)
            k->product.decode(to, codes, part, m->bits, lib_float_at(s, m->type),
                              lib_float_at(m->biases + row * m->bias_row + g * m->bias_step, m->type));
        else decode_fp(m, codes, part, *s, to);
        to += part, c += part, n -= part;
        codes += part * m->bits / 8;
    }
}

/* The same for affine codes of 4 or 8 bits, in one step. */
static void fill_affine(const lib_kernels *k, const lib_matrix *m, int64_t n0, int64_t k0, int depth, float *panel)
{
    for (int p = 0; p < EK_DECODED_COLS; p += EK_PANEL)
        for (int64_t at = k0, end; at < k0 + depth; at = end) {
            const uint8_t *row[EK_PANEL];
            float s[EK_PANEL], b[EK_PANEL];
            int64_t g = at / m->group;
            end = (g + 1) * m->group < k0 + depth ? (g + 1) * m->group : k0 + depth;
            for (int i = 0; i < EK_PANEL; i++) {
                bool there = n0 + p + i < m->n; /* the outputs after the last one are zeros times its codes */
                int64_t n = there ? n0 + p + i : m->n - 1;
                row[i] = m->codes + n * m->code_row + at * m->bits / 8;
                s[i] = there ? lib_float_at(m->scales + n * m->scale_row + g * m->scale_step, m->type) : 0;
                b[i] = there ? lib_float_at(m->biases + n * m->bias_row + g * m->bias_step, m->type) : 0;
            }
            k->product.decode_turned(panel + (at - k0) * EK_DECODED_COLS + p, row, (int)(end - at), m->bits, s, b);
        }
}

/* Makes columns of the panel from rows of values that run along inputs, 16 rows at a time. */
static void fill_turned(const lib_kernels *k, const lib_matrix *m, int64_t n0, int64_t k0, int depth, float *panel,
                        float *temp)
{
    for (int p = 0; p < EK_DECODED_COLS; p += EK_PANEL) {
        for (int i = 0; i < EK_PANEL; i++) {
            int64_t n = n0 + p + i;
            float *row = temp + i * EK_DECODED_DEPTH;
            if (n >= m->n) memset(row, 0, sizeof *row * (size_t)depth);
            else if (m->kind == LIB_DENSE)
                lib_load(k, row, m->data + n * m->n_stride + k0 * m->k_stride, m->type, m->k_stride, depth);
            else lib_decode(k, m, n, k0, depth, row);
        }
        k->product.transpose(panel + p, temp);
    }
}

static void fill_straight(const lib_kernels *k, const lib_matrix *m, int64_t n0, int64_t k0, int depth, float *panel)
{
    int64_t left = m->n - n0, cols = left < EK_DECODED_COLS ? left : EK_DECODED_COLS;
    for (int i = 0; i < depth; i++, panel += EK_DECODED_COLS) {
        if (m->kind == LIB_DENSE)
            lib_load(k, panel, m->data + n0 * m->n_stride + (k0 + i) * m->k_stride, m->type, m->n_stride, cols);
        else lib_decode(k, m, k0 + i, n0, cols, panel);
        if (cols < EK_DECODED_COLS) memset(panel + cols, 0, sizeof *panel * (size_t)(EK_DECODED_COLS - cols));
    }
}

void lib_fill(const lib_kernels *k, const lib_matrix *m, int64_t n0, int64_t k0, int depth, float *panel, float *temp)
{
    if (m->kind == LIB_PACKED) {
        if (n0 + EK_DECODED_COLS > (int64_t)m->packed->n_panels * EK_PANEL)
            memset(panel, 0, sizeof *panel * EK_DECODED_COLS * (size_t)depth);
        k->product.unpack(panel, m->packed, (int)(n0 / EK_PANEL), (int)k0, depth);
        return;
    }
    bool turned = m->kind == LIB_QUANTISED ? m->transposed : m->k_stride == (int64_t)lib_type_size(m->type);
    bool affine = m->kind == LIB_QUANTISED && m->mode == EK_AFFINE && (m->bits == 4 || m->bits == 8);
    if (turned && affine && k->product.decode_turned) fill_affine(k, m, n0, k0, depth, panel);
    else if (turned) fill_turned(k, m, n0, k0, depth, panel, temp);
    else fill_straight(k, m, n0, k0, depth, panel);
}
