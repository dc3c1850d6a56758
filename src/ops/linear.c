/* Plans, and the scalar definition of every form: it reads like the contract. */
#include "ops/linear.h"

#include <math.h>

#include "ops/linear_layout.h"
#include "ops/tree.h"

static float f32_at(const uint8_t *p, int i)
{
    return ((const float *)p)[i];
}

static float f16_at(const uint8_t *p, int i)
{
    return ek_f16_f32(((const ek_f16 *)p)[i]);
}

static float bf16_at(const uint8_t *p, int i)
{
    return ek_bf16_f32(((const ek_bf16 *)p)[i]);
}

typedef float load_fn(const uint8_t *p, int i);

static inline float output_f(const uint8_t *panel, int o, const float *x, int k, load_fn *load)
{
    ek_tree t = {0};
    for (int k0 = 0; k0 < k; k0 += EK_KBLOCK) {
        int k1 = k0 + EK_KBLOCK < k ? k0 + EK_KBLOCK : k;
        float a = 0;
        for (int i = k0; i < k1; i++) a = fmaf(x[i], load(panel, i * EK_PANEL + o), a);
        ek_tree_push(&t, a);
    }
    return ek_tree_sum(&t);
}

static inline void run_f(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1,
                         load_fn *load)
{
    for (int r = r0; r < r1; r++) {
        const float *row = x->x + ek_acts_row(x, r) * x->ldx;
        for (int n = p0 * EK_PANEL; n < w->n && n < p1 * EK_PANEL; n++)
            y[r * ldy + n] = output_f(w->data + (size_t)(n / EK_PANEL) * w->panel_bytes, n % EK_PANEL, row, w->k, load);
    }
}

static void run_f32(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run_f(w, x, r0, r1, y, ldy, p0, p1, f32_at);
}

static void run_f16(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run_f(w, x, r0, r1, y, ldy, p0, p1, f16_at);
}

static void run_bf16(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    run_f(w, x, r0, r1, y, ldy, p0, p1, bf16_at);
}

/* c of output o at position k of a group. */
static inline int code(const ek_linear *w, const uint8_t *group, int o, int k)
{
    int quad = k / 4, at = o * 4 + k % 4;
    if (w->form == EK_W_Q8) return group[quad * 64 + at] - 128;
    return (group[quad / 2 * 64 + at] >> (quad & 1) * 4 & 15) - 8;
}

static float output_q(const ek_linear *w, const uint8_t *panel, int o, const ek_acts *x, int r)
{
    load_fn *load = w->scale_dtype == EK_BF16 ? bf16_at : f32_at;
    size_t group_bytes = ek_linear_group_bytes(w), code_bytes = ek_linear_code_bytes(w);
    const float *sx = x->sx + ek_acts_row(x, r) * x->lds, *sxx = x->sxx + ek_acts_row(x, r) * x->lds;
    ek_tree t = {0};
    for (int k0 = 0; k0 < w->k; k0 += EK_KBLOCK) {
        float a1 = 0, a2 = 0;
        for (int k = k0; k < k0 + EK_KBLOCK && k < w->k; k += w->a_group) {
            const uint8_t *group = panel + (size_t)(k / w->group) * group_bytes;
            float s = load(group + code_bytes, o);
            int32_t dot = 0;
            for (int i = k; i < k + w->a_group; i++) dot += code(w, group, o, i % w->group) * ek_acts_code(x, r, i);
            a1 = fmaf(s * (float)dot, sx[k / w->a_group], a1);
            if (!w->biased) continue;
            float centre = fmaf((float)w->zero, s, load(group + code_bytes, EK_PANEL + o));
            a2 = fmaf(centre, sxx[k / w->a_group], a2);
        }
        ek_tree_push(&t, w->biased ? a1 + a2 : a1);
    }
    return ek_tree_sum(&t);
}

static void run_q(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    for (int r = r0; r < r1; r++)
        for (int n = p0 * EK_PANEL; n < w->n && n < p1 * EK_PANEL; n++)
            y[r * ldy + n] = output_q(w, w->data + (size_t)(n / EK_PANEL) * w->panel_bytes, n % EK_PANEL, x, r);
}

static void quantize(const float *x, int k, int a_group, int8_t *q, float *sx, float *sxx, int32_t *start, int limbs)
{
    const float largest = limbs == 1 ? 127.0f : 32512.0f;
    for (int g = 0; g * a_group < k; g++, x += a_group, q += limbs * a_group) {
        int n = k - g * a_group < a_group ? k - g * a_group : a_group;
        uint32_t top = 0; /* bits of |x| order like the values, NaN above all */
        for (int i = 0; i < n; i++) {
            uint32_t mag = ek_f32_bits(x[i]) & 0x7fffffffu;
            if (mag > top) top = mag;
        }
        float amax = ek_bits_f32(top), inv = 0;
        sx[g] = 0;
        if (top >= 0x7f800000u) sx[g] = ek_bits_f32(0x7fc00000u);
        else if (amax >= 0x1p-100f) sx[g] = amax / largest, inv = largest / amax;
        int32_t sum = 0;
        for (int i = 0; i < a_group; i++) {
            int32_t v = i < n && inv > 0 ? (int32_t)rintf(x[i] * inv) : 0, high = (v + 32768 + 128) / 256 - 128;
            q[i] = (int8_t)(limbs == 1 ? v : high);
            if (limbs == 2) q[a_group + i] = (int8_t)(v - 256 * high);
            sum += v;
        }
        sxx[g] = sx[g] * (float)sum;
        start[g] = -8 * sum;
    }
}

static void quantize_row(const float *x, int k, int a_group, int8_t *q, float *sx, float *sxx, int32_t *start)
{
    quantize(x, k, a_group, q, sx, sxx, start, 1);
}

static void quantize_row_2(const float *x, int k, int a_group, int8_t *q, float *sx, float *sxx, int32_t *start)
{
    quantize(x, k, a_group, q, sx, sxx, start, 2);
}

void ek_linear_init(ek_linear_ops *ops, unsigned cpu)
{
    *ops = (ek_linear_ops){quantize_row, quantize_row_2, {run_f32, run_f16, run_bf16, run_q, run_q}};
#if defined(__x86_64__)
    ek_linear_init_x86(ops, cpu);
#else
    (void)cpu;
#endif
}

static ek_err check_shape(int n, int k)
{
    if (n < 1 || k < 1 || n > EK_LINEAR_MAX || k > EK_LINEAR_MAX)
        return ek_fail(EK_EINVAL, "a matrix of %d outputs x %d inputs, 1 to %d of each are possible", n, k,
                       EK_LINEAR_MAX);
    return EK_OK;
}

static void finish(ek_linear *w, unsigned cpu, size_t panel_bytes)
{
    ek_linear_ops ops;
    ek_linear_init(&ops, cpu);
    w->n_panels = (w->n + EK_PANEL - 1) / EK_PANEL;
    w->panel_bytes = panel_bytes;
    w->bytes = (size_t)w->n_panels * panel_bytes;
    w->run = ops.run[w->form];
}

ek_err ek_linear_plan_float(ek_linear *w, unsigned cpu, int n, int k, ek_wform form)
{
    EK_TRY(check_shape(n, k));
    if (form != EK_W_F32 && form != EK_W_F16 && form != EK_W_BF16)
        return ek_fail(EK_EINVAL, "weight form %d of a %d x %d matrix is not a float form", (int)form, n, k);
    *w = (ek_linear){.form = form, .n = n, .k = k};
    finish(w, cpu, ((size_t)k * EK_PANEL * (form == EK_W_F32 ? 4 : 2) + 63) / 64 * 64);
    return EK_OK;
}

ek_err ek_linear_plan_affine(ek_linear *w, unsigned cpu, int n, int k, int bits, int group, ek_dtype scale_dtype,
                             bool biased)
{
    EK_TRY(check_shape(n, k));
    if (bits < 2 || bits > 8 || bits == 7)
        return ek_fail(EK_EINVAL, "%d-bit weights of a %d x %d matrix; 2, 3, 4, 5, 6 and 8 are possible", bits, n, k);
    if (group != 32 && group != 64 && group != 128)
        return ek_fail(EK_EINVAL, "group %d of a %d x %d matrix; 32, 64 and 128 are possible", group, n, k);
    if (k % group != 0)
        return ek_fail(EK_EINVAL, "a %d x %d matrix does not divide into groups of %d inputs", n, k, group);
    if (scale_dtype != EK_BF16 && scale_dtype != EK_F16 && scale_dtype != EK_F32)
        return ek_fail(EK_EINVAL, "scales of a %d x %d matrix are neither BF16, F16 nor F32", n, k);
    *w = (ek_linear){.form = bits <= 4 ? EK_W_Q4 : EK_W_Q8,
                     .n = n,
                     .k = k,
                     .group = group,
                     .a_group = group == 32 ? 32 : 64,
                     .bits = bits,
                     .zero = 1 << (bits - 1),
                     .limbs = 1,
                     .biased = biased,
                     .scale_dtype = scale_dtype == EK_BF16 ? EK_BF16 : EK_F32};
    finish(w, cpu, (size_t)(k / group) * ek_linear_group_bytes(w));
    return EK_OK;
}

ek_err ek_linear_set_limbs(ek_linear *w, int limbs)
{
    if (!ek_wform_is_q(w->form) || limbs < 1 || limbs > 2)
        return ek_fail(EK_EINVAL, "%d activation limbs for form %d of a %d x %d matrix; quantised forms take 1 or 2",
                       limbs, (int)w->form, w->n, w->k);
    w->limbs = limbs;
    return EK_OK;
}
