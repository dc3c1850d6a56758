/* Matrices that are rearranged once for many products. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "lib/product.h"

struct ek_packed {
    ek_linear w;
};

static ek_err alloc_data(ek_linear *w)
{
    w->data = ek_alloc_big(w->bytes); /* in large pages */
    return w->data ? EK_OK : ek_fail_in(EK_ENOMEM, "packed weights, %d x %d", w->n, w->k);
}

static ek_err check_size(const lib_operand *o)
{
    if (o->n_batch) return ek_fail(EK_EINVAL, "w %s: only a matrix of two dims can be packed", o->shape);
    if (o->w.n < 1 || o->w.k < 1 || o->w.n > EK_LINEAR_MAX || o->w.k > EK_LINEAR_MAX)
        return ek_fail(EK_EINVAL, "w %s is %lld outputs x %lld inputs, 1 to %d of each can be packed", o->shape,
                       (long long)o->w.n, (long long)o->w.k, EK_LINEAR_MAX);
    return EK_OK;
}

/* ------------------------------------------------------------------ as floats */

typedef struct float_work {
    const lib_kernels *k;
    const lib_matrix *m;
    ek_linear *w;
    float *scratch;     /* a panel and a temporary one, per worker */
    atomic_bool rounds; /* a value is not exactly a bf16 */
} float_work;

enum { SCRATCH = (EK_DECODED_COLS + EK_PANEL) * EK_DECODED_DEPTH };

static void find_rounding_task(void *arg, int64_t task, int worker)
{
    float_work *t = arg;
    const lib_matrix *m = t->m;
    float *panel = t->scratch + (size_t)worker * SCRATCH;
    for (int64_t k0 = 0; k0 < m->k && !atomic_load_explicit(&t->rounds, memory_order_relaxed); k0 += EK_DECODED_DEPTH) {
        int depth = (int)(m->k - k0 < EK_DECODED_DEPTH ? m->k - k0 : EK_DECODED_DEPTH);
        lib_fill(t->k, m, task * EK_DECODED_COLS, k0, depth, panel, panel + EK_DECODED_COLS * EK_DECODED_DEPTH);
        uint32_t low = 0;
        for (int i = 0; i < depth * EK_DECODED_COLS; i++) low |= ek_f32_bits(panel[i]) & 0xffffu;
        if (low) atomic_store(&t->rounds, true);
    }
}

static ek_dtype element_of(const ek_linear *w)
{
    return w->form == EK_W_F32 ? EK_F32 : w->form == EK_W_F16 ? EK_F16 : EK_BF16;
}

/* Writes input k of the 16 outputs of panel p. */
static void put_outputs(const ek_linear *w, int64_t p, int64_t k, const float *from)
{
    const ek_dtype element = element_of(w);
    const size_t size = ek_dtype_size(element);
    uint8_t *to = w->data + (size_t)p * w->panel_bytes + (size_t)k * EK_PANEL * size;
    for (int o = 0; o < EK_PANEL; o++) ek_store_float(to + (size_t)o * size, element, from[o]);
}

static void put_task(void *arg, int64_t task, int worker)
{
    float_work *t = arg;
    const lib_matrix *m = t->m;
    float *panel = t->scratch + (size_t)worker * SCRATCH;
    int64_t p0 = task * (EK_DECODED_COLS / EK_PANEL);
    for (int64_t k0 = 0; k0 < m->k; k0 += EK_DECODED_DEPTH) {
        int depth = (int)(m->k - k0 < EK_DECODED_DEPTH ? m->k - k0 : EK_DECODED_DEPTH);
        lib_fill(t->k, m, task * EK_DECODED_COLS, k0, depth, panel, panel + EK_DECODED_COLS * EK_DECODED_DEPTH);
        for (int p = 0; p < EK_DECODED_COLS / EK_PANEL && p0 + p < t->w->n_panels; p++)
            for (int i = 0; i < depth; i++)
                put_outputs(t->w, p0 + p, k0 + i, panel + i * EK_DECODED_COLS + p * EK_PANEL);
    }
    const size_t used = (size_t)m->k * EK_PANEL * ek_dtype_size(element_of(t->w));
    for (int p = 0; p < EK_DECODED_COLS / EK_PANEL && p0 + p < t->w->n_panels; p++)
        memset(t->w->data + (size_t)(p0 + p) * t->w->panel_bytes + used, 0, t->w->panel_bytes - used);
}

static ek_err pack_floats(lib_call *c, ek_linear *w, const lib_matrix *m)
{
    const lib_kernels *k = lib_kernels_of(c->cpu);
    float_work t = {.k = k, .m = m, .w = w};
    int64_t tasks = (m->n + EK_DECODED_COLS - 1) / EK_DECODED_COLS;
    t.scratch = lib_take_array(c, (size_t)c->n_workers, SCRATCH * sizeof *t.scratch);
    if (!t.scratch) return EK_ENOMEM;
    atomic_init(&t.rounds, m->kind == LIB_QUANTISED && m->mode == EK_AFFINE);
    ek_dtype element = m->kind == LIB_DENSE && m->type == EK_TYPE_F16 ? EK_F16 : EK_BF16;
    if (m->kind == LIB_QUANTISED && m->mode != EK_AFFINE) lib_run(c, find_rounding_task, &t, tasks);
    if (atomic_load(&t.rounds) || (m->kind == LIB_DENSE && m->type == EK_TYPE_F32)) element = EK_F32;
    EK_TRY(ek_linear_plan(w, c->cpu, (int)m->n, (int)m->k, ek_weight_type_float(element)));
    EK_TRY(alloc_data(w));
    lib_run(c, put_task, &t, tasks);
    return EK_OK;
}

/* ------------------------------------------------------------------ public */

static ek_err pack(lib_call *c, ek_packed **out, const ek_view *dense, const ek_qview *quantised, bool transpose)
{
    lib_operand o;
    if (!out) return ek_fail(EK_EINVAL, "nowhere to put the packed matrix");
    *out = NULL;
    if (dense) EK_TRY(lib_operand_dense(&o, dense, transpose));
    else EK_TRY(lib_operand_quantised(c, &o, quantised, transpose));
    EK_TRY(check_size(&o));
    ek_linear w = {0};
    ek_packed *packed = malloc(sizeof *packed);
    if (!packed) return ek_fail(EK_ENOMEM, "no memory for a packed matrix");
    ek_err e;
    if (quantised && o.w.mode == EK_AFFINE && transpose) {
        const ek_weight_type *type;
        e = ek_weight_type_affine(&type, o.w.bits, o.w.group, lib_dtype(o.w.type), true);
        if (e == EK_OK) e = ek_linear_plan(&w, c->cpu, (int)o.w.n, (int)o.w.k, type);
        if (e == EK_OK) e = alloc_data(&w);
        if (e == EK_OK) e = lib_pack_affine(c, &w, &o.w);
    } else e = pack_floats(c, &w, &o.w);
    if (e != EK_OK) {
        ek_free_big(w.data, w.bytes);
        free(packed);
        return e;
    }
    packed->w = w;
    *out = packed;
    return EK_OK;
}

ek_status ek_pack(ek_packed **out, ek_view w, bool transpose)
{
    return LIB_OPERATE(c, pack(&c, out, &w, NULL, transpose));
}

ek_status ek_pack_quantized(ek_packed **out, const ek_qview *w, bool transpose)
{
    return LIB_OPERATE(c, pack(&c, out, NULL, w, transpose));
}

void ek_packed_free(ek_packed *w)
{
    if (!w) return;
    ek_free_big(w->w.data, w->w.bytes);
    free(w);
}

size_t ek_packed_bytes(const ek_packed *w)
{
    return w ? w->w.bytes : 0;
}

ek_status ek_packed_matmul(ek_view y, ek_view x, const ek_packed *w, ek_precision precision)
{
    if (!w) return lib_status(ek_fail(EK_EINVAL, "the packed matrix is missing"));
    return LIB_OPERATE(c, lib_packed_matmul(&c, &y, &x, &w->w, precision));
}
