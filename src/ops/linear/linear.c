/* Plans, and the scalar definition of every form: it reads like the contract. */
#include "ops/linear/linear.h"

#include <math.h>

#include "base/machine/cpu.h"
#include "ops/linear/planes.h"
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

static float output_q(const ek_linear *w, const uint8_t *panel, int o, const ek_acts *x, int r)
{
    load_fn *load = w->scale_dtype == EK_BF16 ? bf16_at : f32_at;
    size_t group_bytes = ek_linear_group_bytes(w), code_bytes = ek_linear_code_bytes(w);
    const ek_act_group *act = ek_acts_groups(x, r, w->limbs);
    ek_tree tree = {0};
    for (int k0 = 0; k0 < w->k; k0 += EK_KBLOCK_Q) {
        float a = 0;
        for (int k = k0; k < k0 + EK_KBLOCK_Q && k < w->k; k += w->a_group, act++) {
            const uint8_t *group = panel + (size_t)(k / w->group) * group_bytes;
            float s = load(group + code_bytes, o);
            int32_t dot = 0;
            for (int i = k; i < k + w->a_group; i++)
                dot += ek_linear_code(w, group, o, i % w->group) * ek_acts_code(x, r, i, w->limbs);
            float t = s * (float)dot;
            if (w->biased) t = fmaf(fmaf((float)w->zero, s, load(group + code_bytes, EK_PANEL + o)), act->sum, t);
            a = fmaf(t, act->sx, a);
        }
        ek_tree_push(&tree, a);
    }
    return ek_tree_sum(&tree);
}

static void run_q(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    for (int r = r0; r < r1; r++)
        for (int n = p0 * EK_PANEL; n < w->n && n < p1 * EK_PANEL; n++)
            y[r * ldy + n] = output_q(w, w->data + (size_t)(n / EK_PANEL) * w->panel_bytes, n % EK_PANEL, x, r);
}

/* The same chain over codes and scales of form PLANES. */
static float output_planes(const ek_linear *w, const uint8_t *panel, int o, const ek_acts *x, int r)
{
    const ek_act_group *act = ek_acts_groups(x, r, w->limbs);
    ek_tree tree = {0};
    for (int k0 = 0; k0 < w->k; k0 += EK_KBLOCK_Q) {
        int8_t c[EK_KBLOCK_Q];
        float s[EK_KBLOCK_Q / 16], b[EK_KBLOCK_Q / 16], a = 0;
        const int n = w->k - k0 < EK_KBLOCK_Q ? w->k - k0 : EK_KBLOCK_Q;
        ek_planes_read(w, panel, o, k0, n, c, s, b);
        for (int k = 0; k < n; k += w->a_group, act++) {
            const int g = k / w->group;
            int32_t dot = 0;
            for (int i = k; i < k + w->a_group; i++) dot += c[i] * ek_acts_code(x, r, k0 + i, w->limbs);
            float t = s[g] * (float)dot;
            if (w->biased) t = fmaf(fmaf((float)w->zero, s[g], b[g]), act->sum, t);
            a = fmaf(t, act->sx, a);
        }
        ek_tree_push(&tree, a);
    }
    return ek_tree_sum(&tree);
}

static void run_planes(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    for (int r = r0; r < r1; r++)
        for (int n = p0 * EK_PANEL; n < w->n && n < p1 * EK_PANEL; n++)
            y[r * ldy + n] = output_planes(w, w->data + (size_t)(n / EK_PANEL) * w->panel_bytes, n % EK_PANEL, x, r);
}

static void quantize_row(const float *x, int k, int a_group, int8_t *h, int8_t *l, ek_act_group *one, ek_act_group *two)
{
    for (int g = 0; g * a_group < k; g++, x += a_group, h += a_group) {
        int n = k - g * a_group < a_group ? k - g * a_group : a_group;
        uint32_t top = 0; /* bits of |x| order like the values, NaN above all */
        for (int i = 0; i < n; i++) {
            uint32_t mag = ek_f32_bits(x[i]) & 0x7fffffffu;
            if (mag > top) top = mag;
        }
        float amax = ek_bits_f32(top), inv = 0, sx = 0;
        if (top >= 0x7f800000u) sx = ek_bits_f32(0x7fc00000u);
        else if (amax >= 0x1p-100f) sx = amax / 32512, inv = 32512 / amax;
        int32_t sum_h = 0, sum_q = 0, h_of[2] = {0}, l_of[2] = {0}; /* of inputs with k % 4 < 2, and of the others */
        for (int i = 0; i < a_group; i++) {
            int32_t q = i < n && inv > 0 ? (int32_t)rintf(x[i] * inv) : 0, high = (q + 32768 + 128) / 256 - 128;
            const int8_t low = (int8_t)(q - 256 * high);
            h[i] = (int8_t)high;
            if (l) l[i] = low;
            sum_h += high;
            sum_q += q;
            h_of[i / 2 % 2] += h[i];
            l_of[i / 2 % 2] += low;
        }
        one[g] = (ek_act_group){256 * sx, (float)sum_h, -8 * sum_h, ek_act_starts(h_of[0], h_of[1], 0)};
        if (!l) continue;
        two[g] = (ek_act_group){sx, (float)sum_q, -8 * sum_q, ek_act_starts(l_of[0], l_of[1], EK_ACT_LOWER)};
        l += a_group;
    }
}

#if defined(__x86_64__)
static void init_isa(ek_linear_ops *ops, unsigned cpu)
{
    if (!(cpu & EK_CPU_AVX2)) return;
    *ops = (ek_linear_ops){ek_quantize_row_avx2,
                           {ek_linear_f32_avx2, ek_linear_f16_avx2, ek_linear_bf16_avx2, ek_linear_q4_avx2,
                            ek_linear_q8_avx2, ek_linear_planes_avx2}};
    if (cpu & EK_CPU_AVXVNNI) {
        ops->run[EK_W_Q4] = ek_linear_q4_avxvnni;
        ops->run[EK_W_Q8] = ek_linear_q8_avxvnni;
        ops->run[EK_W_PLANES] = ek_linear_planes_avxvnni;
    }
    if (!(cpu & EK_CPU_AVX512)) return;
    *ops = (ek_linear_ops){ek_quantize_row_avx512,
                           {ek_linear_f32_avx512, ek_linear_f16_avx512, ek_linear_bf16_avx512, ek_linear_q4_avx512,
                            ek_linear_q8_avx512, ek_linear_planes_avx512}};
    if (cpu & EK_CPU_ZEN4) {
        ops->run[EK_W_Q4] = ek_linear_q4_avx512_zen4;
        ops->run[EK_W_Q8] = ek_linear_q8_avx512_zen4;
        ops->run[EK_W_PLANES] = ek_linear_planes_avx512_zen4;
    }
    if (!(cpu & EK_CPU_AMX)) return;
    ops->run[EK_W_Q4] = ek_linear_q4_amx;
    ops->run[EK_W_Q8] = ek_linear_q8_amx;
    ops->run[EK_W_PLANES] = ek_linear_planes_amx;
}
#elif defined(__aarch64__)
static void init_isa(ek_linear_ops *ops, unsigned cpu)
{
    if (!(cpu & EK_CPU_DOTPROD)) return;
    ops->quantize_row = ek_quantize_row_neon;
    ops->run[EK_W_Q4] = ops->run[EK_W_Q8] = cpu & EK_CPU_I8MM ? ek_linear_q_i8mm : ek_linear_q_dotprod;
}
#else
static void init_isa(ek_linear_ops *ops, unsigned cpu)
{
    (void)ops, (void)cpu;
}
#endif

void ek_linear_init(ek_linear_ops *ops, unsigned cpu)
{
    *ops = (ek_linear_ops){quantize_row, {run_f32, run_f16, run_bf16, run_q, run_q, run_planes}};
    init_isa(ops, cpu);
}

static ek_err check_shape(int n, int k)
{
    if (n < 1 || k < 1 || n > EK_LINEAR_MAX || k > EK_LINEAR_MAX)
        return ek_fail(EK_EINVAL, "a matrix of %d outputs x %d inputs, 1 to %d of each are possible", n, k,
                       EK_LINEAR_MAX);
    return EK_OK;
}

ek_err ek_linear_plan(ek_linear *w, unsigned cpu, int n, int k, const ek_weight_type *type)
{
    ek_linear_ops ops;
    EK_TRY(check_shape(n, k));
    if (k % type->block != 0)
        return ek_fail(EK_EINVAL, "a %d x %d matrix does not divide into groups of %d inputs", n, k, type->block);
    *w = (ek_linear){.form = type->form, .n = n, .k = k, .n_panels = (n + EK_PANEL - 1) / EK_PANEL};
    if (ek_wform_is_q(type->form)) {
        w->group = type->group, w->a_group = type->group <= 32 ? type->group : 64, w->limbs = 1;
        w->bits = type->bits, w->zero = type->zero, w->biased = type->biased, w->scale_dtype = type->scale_dtype;
        if (type->form == EK_W_PLANES) {
            EK_TRY(ek_planes_plan(w, type));
        } else {
            if (type->group != 32 && type->group != 64 && type->group != 128)
                return ek_fail(EK_EUNSUPPORTED, "%s weights share a scale per %d; there are kernels for 32, 64 and 128",
                               type->name, type->group);
            w->panel_bytes = (size_t)(k / w->group) * ek_linear_group_bytes(w);
        }
    } else {
        w->panel_bytes = ((size_t)k * EK_PANEL * (type->form == EK_W_F32 ? 4 : 2) + 63) / 64 * 64;
    }
    w->bytes = (size_t)w->n_panels * w->panel_bytes;
    ek_linear_init(&ops, cpu);
    w->run = ops.run[w->form];
    return EK_OK;
}

ek_err ek_linear_set_acts(ek_linear *w, ek_act_form acts)
{
    if (!ek_wform_is_q(w->form))
        return ek_fail(EK_EINVAL, "quantised activations for form %d of a %d x %d matrix, which takes floats",
                       (int)w->form, w->n, w->k);
    if (acts.limbs < 1 || acts.limbs > 2)
        return ek_fail(EK_EINVAL, "%d activation limbs for a %d x %d matrix; there are 1 and 2", acts.limbs, w->n,
                       w->k);
    if (w->form == EK_W_PLANES && acts.group != w->a_group)
        return ek_fail(EK_EINVAL, "activations in groups of %d for weights in groups of %d; there are %d", acts.group,
                       w->group, w->a_group);
    if (w->form != EK_W_PLANES && ((acts.group != 32 && acts.group != 64) || w->group % acts.group != 0))
        return ek_fail(EK_EINVAL, "activations in groups of %d for weights in groups of %d; there are 32 and 64",
                       acts.group, w->group);
    w->limbs = acts.limbs;
    w->a_group = acts.group;
    return EK_OK;
}
