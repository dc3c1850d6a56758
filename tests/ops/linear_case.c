#include "linear_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static bool is_q(const linear_shape *s)
{
    return s->form == EK_W_Q4 || s->form == EK_W_Q8;
}

static ek_dtype element(const linear_case *c)
{
    if (is_q(&c->shape)) return c->shape.scale_dtype;
    return c->shape.form == EK_W_F32 ? EK_F32 : c->shape.form == EK_W_F16 ? EK_F16 : EK_BF16;
}

static float get(const void *src, size_t i, ek_dtype t)
{
    const uint8_t *p = (const uint8_t *)src + i * ek_dtype_size(t);
    uint16_t h;
    uint32_t u;
    memcpy(&h, p, sizeof h);
    if (t == EK_BF16) return ek_bf16_f32(h);
    if (t == EK_F16) return ek_f16_f32(h);
    memcpy(&u, p, sizeof u);
    return ek_bits_f32(u);
}

static void put(void *dst, size_t i, ek_dtype t, float f)
{
    uint8_t *p = (uint8_t *)dst + i * ek_dtype_size(t);
    uint16_t h = t == EK_BF16 ? ek_f32_bf16(f) : ek_f32_f16(f);
    if (t == EK_F32) memcpy(p, &f, 4);
    else memcpy(p, &h, 2);
}

static void open_float(linear_case *c, uint64_t seed)
{
    const linear_shape *s = &c->shape;
    size_t count = (size_t)s->n * (size_t)s->k;
    c->code_bytes = count * ek_dtype_size(element(c));
    c->codes = check_alloc(c->code_bytes);
    for (size_t i = 0; i < count; i++) put(c->codes, i, element(c), check_uniform(seed, i));
    c->data = (ek_weight_data){.type = ek_weight_type_float(element(c)), .n = s->n, .k = s->k, .plane = {c->codes}};
    if (ek_linear_plan(&c->w, 0, s->n, s->k, c->data.type) != EK_OK) fail_msg("%s", ek_err_text());
    c->w.data = check_alloc(c->w.bytes);
    if (ek_linear_pack(&c->w, 0, &c->data) != EK_OK) fail_msg("%s", ek_err_text());
}

static void open_affine(linear_case *c, uint64_t seed)
{
    const linear_shape *s = &c->shape;
    size_t count = (size_t)s->n * (size_t)(s->k / s->group);
    c->code_bytes = (size_t)s->n * (size_t)s->k / 8 * (size_t)s->bits;
    c->codes = check_alloc(c->code_bytes);
    check_fill_bytes(c->codes, c->code_bytes, seed);
    c->scale_bytes = count * ek_dtype_size(s->scale_dtype);
    c->scales = check_alloc(c->scale_bytes);
    c->biases = s->biased ? check_alloc(c->scale_bytes) : NULL;
    for (size_t i = 0; i < count; i++) { /* both signs; a bias near -zero * scale, as quantising gives */
        float scale = 0.01f * check_uniform(seed + 1, i);
        put(c->scales, i, s->scale_dtype, scale);
        if (s->biased)
            put(c->biases, i, s->scale_dtype,
                -scale * (float)(1 << (s->bits - 1)) * (1 + 0.3f * check_uniform(seed + 2, i)));
    }
    c->data = (ek_weight_data){.n = s->n, .k = s->k, .plane = {c->codes, c->scales, c->biases}};
    if (ek_weight_type_affine(&c->data.type, s->bits, s->group, s->scale_dtype, s->biased) != EK_OK ||
        ek_linear_plan(&c->w, 0, s->n, s->k, c->data.type) != EK_OK)
        fail_msg("%s", ek_err_text());
    if (s->limbs && ek_linear_set_acts(&c->w, (ek_act_form){s->limbs, c->w.a_group}) != EK_OK)
        fail_msg("%s", ek_err_text());
    c->w.data = check_alloc(c->w.bytes);
    memset(c->w.data, 0xa5, c->w.bytes); /* packing must not rely on zeroed memory */
    int half = s->n / 2;                 /* in two calls, the first not at a panel's edge */
    for (int second = 0; second < 2; second++) {
        int row = second ? half : 0, rows = second ? s->n - half : half;
        ek_weight_data some = ek_weight_rows(&c->data, row, rows);
        if (rows && ek_linear_pack(&c->w, row, &some) != EK_OK) fail_msg("%s", ek_err_text());
    }
}

void linear_case_open(linear_case *c, const linear_shape *shape, uint64_t seed)
{
    *c = (linear_case){.shape = *shape};
    if (is_q(shape)) {
        snprintf(c->name, sizeof c->name, "affine %d bits group %d %s scales %s, %d limbs, n %d k %d", shape->bits,
                 shape->group, ek_dtype_name(shape->scale_dtype), shape->biased ? "biased" : "symmetric",
                 shape->limbs ? shape->limbs : 1, shape->n, shape->k);
        open_affine(c, seed);
    } else {
        snprintf(c->name, sizeof c->name, "%s, n %d k %d", ek_dtype_name(element(c)), shape->n, shape->k);
        open_float(c, seed);
    }
}

void linear_case_close(linear_case *c)
{
    check_free(c->codes, c->code_bytes);
    if (c->scales) check_free(c->scales, c->scale_bytes);
    if (c->biases) check_free(c->biases, c->scale_bytes);
    check_free(c->w.data, c->w.bytes);
}

int linear_case_code(const linear_case *c, int n, int k)
{
    size_t bit = ((size_t)n * (size_t)c->shape.k + (size_t)k) * (size_t)c->shape.bits;
    int u = 0;
    for (int i = 0; i < c->shape.bits; i++) u |= (c->codes[(bit + (size_t)i) / 8] >> (bit + (size_t)i) % 8 & 1) << i;
    return u;
}

static size_t group_of(const linear_case *c, int n, int k)
{
    return (size_t)n * (size_t)(c->shape.k / c->shape.group) + (size_t)(k / c->shape.group);
}

double linear_case_scale(const linear_case *c, int n, int k)
{
    return get(c->scales, group_of(c, n, k), c->shape.scale_dtype);
}

double linear_case_bias(const linear_case *c, int n, int k)
{
    if (!c->shape.biased) return -linear_case_scale(c, n, k) * (1 << (c->shape.bits - 1));
    return get(c->biases, group_of(c, n, k), c->shape.scale_dtype);
}

double linear_case_weight(const linear_case *c, int n, int k)
{
    if (!is_q(&c->shape)) return get(c->codes, (size_t)n * (size_t)c->shape.k + (size_t)k, element(c));
    return linear_case_scale(c, n, k) * linear_case_code(c, n, k) + linear_case_bias(c, n, k);
}

void linear_case_reference(const linear_case *c, const ek_acts *a, double *want, double *tol)
{
    for (int r = 0; r < a->rows; r++)
        for (int n = 0; n < c->shape.n; n++) {
            double sum = 0, size = 0;
            for (int k = 0; k < c->shape.k; k++) {
                const int limbs = c->w.limbs;
                double x = limbs ? (double)ek_acts_code(a, r, k, limbs) *
                                       (double)ek_acts_groups(a, r, limbs)[k / a->a_group].sx
                                 : (double)a->x[r * a->ldx + k];
                double w = linear_case_weight(c, n, k);
                sum += w * x;
                size += (is_q(&c->shape) ? fabs(linear_case_scale(c, n, k)) * (1 << c->shape.bits) : fabs(w)) * fabs(x);
            }
            want[r * c->shape.n + n] = sum;
            tol[r * c->shape.n + n] = size * 256 * 0x1p-24 / 8 + 1e-37; /* 1 / 8 of the worst chain */
        }
}

void linear_input_open(linear_input *in, const linear_case *c, unsigned cpu, int rows, uint64_t seed)
{
    size_t count = (size_t)rows * (size_t)c->shape.k;
    in->x = check_alloc(count * sizeof *in->x);
    float *at = in->x; /* the last element lies before the guard page if the size allows */
    check_fill_wide(at, count, seed);
    in->mem = check_alloc(ek_acts_bytes(rows, c->shape.k));
    memset(in->mem, 0x5a, ek_acts_bytes(rows, c->shape.k));
    ek_acts_bind(&in->a, in->mem, at, c->shape.k, rows, c->shape.k);
    ek_linear_ops ops;
    ek_linear_init(&ops, cpu);
    ek_acts_quantize_for(&ops, NULL, &in->a, &c->w);
}

void linear_input_close(linear_input *in)
{
    check_free(in->x, (size_t)in->a.rows * (size_t)in->a.k * sizeof *in->x);
    check_free(in->mem, ek_acts_bytes(in->a.rows, in->a.k));
}
