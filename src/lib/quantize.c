/* Quantisation and its inverse. Rows are independent, and so are the groups of a row. */
#include <math.h>
#include <string.h>

#include "lib/product.h"
#include "ops/weights/quantised_type.h"

enum { MAX_GROUP = 128, PIECE = 256 };

/* --- affine: the rule of MLX on the CPU --- */

static void affine_group(const float *w, int n, int bits, uint8_t *code, float *scale, float *bias)
{
    float top = (float)((1 << bits) - 1), low = w[0], high = w[0];
    for (int i = 1; i < n; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
    }
    bool low_edge = fabsf(low) > fabsf(high);
    float s = (high - low) / top;
    s = s > 1e-7f ? s : 1e-7f;
    if (!low_edge) s = -s;
    float edge = low_edge ? low : high, q0 = rintf(edge / s), b = 0;
    if (q0 != 0) s = edge / q0, b = edge;
    for (int i = 0; i < n; i++) {
        float q = rintf((w[i] - b) / s);
        code[i] = (uint8_t)(q > 0 ? q < top ? q : top : 0); /* NaN: 0 */
    }
    *scale = s, *bias = b;
}

/* ------------------------------------------------------------------ fp modes */

static unsigned fp_group(const float *w, int n, ek_quant_mode mode, float global, uint8_t *code)
{
    uint32_t top = 0;
    for (int i = 0; i < n; i++) {
        uint32_t mag = ek_f32_bits(w[i]) & 0x7fffffffu; /* NaN above all */
        top = mag > top ? mag : top;
    }
    float amax = ek_bits_f32(top), largest = mode == EK_MXFP8 ? 448.0f : 6.0f, s = amax / largest, enc = 1 / global;
    unsigned byte = mode == EK_NVFP4 ? ek_f32_e4m3(s * enc) : ek_f32_e8m0(s);
    float decoded = mode == EK_NVFP4 ? ek_e4m3_f32(byte) : ek_e8m0_f32(byte), inv = decoded != 0 ? enc / decoded : 0;
    for (int i = 0; i < n; i++) {
        float x = inv != 0 ? w[i] * inv : 0;
        code[i] = (uint8_t)(mode == EK_MXFP8 ? ek_f32_e4m3(x) : ek_f32_e2m1(x));
    }
    return byte;
}

/* ------------------------------------------------------------------ rows */

typedef struct work {
    const lib_kernels *k;
    const lib_quant *q;
    lib_view x; /* [..., R, C] */
} work;

/* Writes n codes into a row's bit string from element c on, a multiple of 8. */
static void put_codes(uint8_t *row, int64_t c, const uint8_t *code, int n, int bits)
{
    uint8_t *to = row + c * bits / 8;
    for (int i = 0; i < n; i += 8, to += bits) {
        uint64_t word = 0;
        for (int j = 0; j < 8; j++) word |= (uint64_t)code[i + j] << (j * bits);
        memcpy(to, &word, (size_t)bits);
    }
}

static void quantize_row(void *arg, int64_t row, int worker)
{
    (void)worker;
    const work *t = arg;
    const lib_quant *q = t->q;
    int lead = t->x.n_dims - 1;
    uint8_t *codes = q->codes.data + lib_offset(&q->codes, lead, row), code[MAX_GROUP];
    uint8_t *scales = q->scales.data + lib_offset(&q->scales, lead, row);
    const uint8_t *x = t->x.data + lib_offset(&t->x, lead, row);
    int64_t step = lib_stride(&t->x, 1);
    for (int64_t g = 0; g < q->cols / q->group; g++) {
        float w[MAX_GROUP], s, b;
        lib_load(t->k, w, x + g * q->group * step, t->x.type, step, q->group);
        uint8_t *s_at = scales + g * lib_stride(&q->scales, 1);
        if (q->mode == EK_AFFINE) {
            affine_group(w, q->group, q->bits, code, &s, &b);
            lib_store(t->k, s_at, q->scales.type, 0, &s, 1);
            lib_store(t->k, q->biases.data + lib_offset(&q->biases, lead, row) + g * lib_stride(&q->biases, 1),
                      q->biases.type, 0, &b, 1);
        } else *s_at = (uint8_t)fp_group(w, q->group, q->mode, q->global, code);
        put_codes(codes, g * q->group, code, q->group, q->bits);
    }
}

static void dequantize_row(void *arg, int64_t row, int worker)
{
    (void)worker;
    const work *t = arg;
    const lib_quant *q = t->q;
    int lead = t->x.n_dims - 1;
    lib_matrix m = lib_matrix_of(q, true);
    m.codes += lib_offset(&q->codes, lead, row);
    m.scales += lib_offset(&q->scales, lead, row);
    if (m.biases) m.biases += lib_offset(&q->biases, lead, row);
    uint8_t *y = t->x.data + lib_offset(&t->x, lead, row);
    int64_t step = lib_stride(&t->x, 1);
    float part[PIECE];
    for (int64_t c = 0; c < q->cols; c += PIECE) {
        int64_t n = q->cols - c < PIECE ? q->cols - c : PIECE;
        lib_decode(t->k, &m, 0, c, n, part);
        lib_store(t->k, y + c * step, t->x.type, step, part, n);
    }
}

/* Checks x against the shape that q holds. */
static ek_err check_shape(const lib_view *x, const lib_quant *q, const char *what)
{
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT], s[LIB_SHAPE_TEXT];
    bool fits = lib_is_float(x->type) && x->n_dims == q->codes.n_dims && lib_dim(x, 1) == q->cols &&
                memcmp(x->dim, q->codes.dim, sizeof x->dim[0] * (size_t)(x->n_dims - 1)) == 0;
    if (fits) return EK_OK;
    return ek_fail(EK_EINVAL, "%s %s does not fit codes %s and scales %s: %d bits in groups of %d; floats are wanted",
                   what, lib_shape(a, x), lib_shape(b, &q->codes), lib_shape(s, &q->scales), q->bits, q->group);
}

static ek_err quantize(lib_call *c, const ek_qview *view, const ek_view *x_view)
{
    lib_quant q;
    const lib_kernels *k = lib_kernels_of(c->cpu);
    work t = {.k = k, .q = &q};
    EK_TRY(lib_view_check(&t.x, x_view, "x"));
    EK_TRY(lib_quant_check(&q, view, "q"));
    EK_TRY(check_shape(&t.x, &q, "x"));
    EK_TRY(lib_out_check(&q.codes, "codes"));
    EK_TRY(lib_out_check(&q.scales, "scales"));
    if (q.mode == EK_AFFINE) EK_TRY(lib_out_check(&q.biases, "biases"));
    if (t.x.count == 0) return EK_OK;
    lib_out codes, scales, biases = {0};
    const lib_view *x[1] = {&t.x};
    /* codes are written as rows of bytes, so words that are not adjacent are staged */
    bool uneven = lib_dim(&q.codes, 1) > 1 && lib_stride(&q.codes, 1) != (int64_t)lib_type_size(q.codes.type);
    EK_TRY(lib_out_begin(c, &codes, &q.codes, 2, (const lib_view *[]){&t.x, uneven ? &q.codes : NULL}));
    EK_TRY(lib_out_begin(c, &scales, &q.scales, 1, x));
    if (q.mode == EK_AFFINE) EK_TRY(lib_out_begin(c, &biases, &q.biases, 1, x));
    q.codes = codes.view, q.scales = scales.view, q.biases = biases.view;
    lib_run(c, quantize_row, &t, t.x.count / q.cols);
    lib_out_end(c, &codes);
    lib_out_end(c, &scales);
    if (q.mode == EK_AFFINE) lib_out_end(c, &biases);
    return EK_OK;
}

static ek_err dequantize(lib_call *c, const ek_view *y_view, const ek_qview *view)
{
    lib_quant q;
    const lib_kernels *k = lib_kernels_of(c->cpu);
    lib_out out;
    lib_view y;
    work t = {.k = k, .q = &q};
    EK_TRY(lib_view_check(&y, y_view, "y"));
    EK_TRY(lib_quant_check(&q, view, "q"));
    EK_TRY(check_shape(&y, &q, "y"));
    EK_TRY(lib_out_check(&y, "y"));
    if (y.count == 0) return EK_OK;
    EK_TRY(lib_out_begin(c, &out, &y, 3,
                         (const lib_view *[]){&q.codes, &q.scales, q.mode == EK_AFFINE ? &q.biases : NULL}));
    EK_TRY(lib_quant_settle(c, &q));
    t.x = out.view;
    lib_run(c, dequantize_row, &t, y.count / q.cols);
    lib_out_end(c, &out);
    return EK_OK;
}

ek_status ek_quantize(const ek_qview *q, ek_view x)
{
    return LIB_OPERATE(c, quantize(&c, q, &x));
}

ek_status ek_dequantize(ek_view y, const ek_qview *q)
{
    return LIB_OPERATE(c, dequantize(&c, &y, q));
}
