/* Attention over views: the public functions and their checks. The work: ops/attn/attn_tensors.h. */
#include <math.h>
#include <string.h>

#include "lib/product.h"
#include "ops/attn/attn_tensors.h"
#include "ops/math.h"

#define FAR (INT64_C(1) << 40) /* of absolute positions */

/* Keys or values, [B, Hkv, kL, D]. */
typedef struct lib_kv {
    const lib_kernels *k;
    bool quantised;
    lib_view dense;
    lib_quant q;
    int dim;
} lib_kv;

typedef struct lib_sdpa {
    ek_attn_tensors of; /* sizes, scale and the hiding of keys; q, k, v and y are set at the end */
    lib_view q, y;
    lib_kv keys, values;
    bool masked;
    lib_view mask; /* broadcast to [B, H, qL, kL] */
} lib_sdpa;

/* ------------------------------------------------------------------ checks */

static ek_err check_kv(lib_call *c, lib_sdpa *s, lib_kv *x, const ek_view *dense, const ek_qview *quantised,
                       const char *what)
{
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT]; /* written only for an error */
    lib_view shape;
    if (dense) {
        EK_TRY(lib_view_check(&x->dense, dense, what));
        shape = x->dense;
        if (!lib_is_float(shape.type))
            return ek_fail(EK_EINVAL, "%s %s must be f32, f16 or bf16", what, lib_shape(a, &shape));
    } else {
        x->quantised = true;
        EK_TRY(lib_quant_check(&x->q, quantised, what));
        EK_TRY(lib_quant_settle(c, &x->q));
        shape = x->q.codes;
        shape.dim[shape.n_dims - 1] = x->q.cols;
    }
    if (shape.n_dims != 4 || shape.dim[0] != s->of.entries || shape.dim[3] != s->of.dim || shape.dim[1] < 1 ||
        s->of.heads % shape.dim[1])
        return ek_fail(EK_EINVAL,
                       "%s %s does not fit q %s: [B, Hkv, kL, D] with %lld heads a multiple of Hkv is wanted", what,
                       lib_shape(b, &shape), lib_shape(a, &s->q), (long long)s->of.heads);
    if (x == &s->values && (shape.dim[1] != s->of.kv_heads || shape.dim[2] != s->of.keys))
        return ek_fail(EK_EINVAL, "v %s does not fit the keys, [%lld, %lld, %lld, %d]", lib_shape(b, &shape),
                       (long long)s->of.entries, (long long)s->of.kv_heads, (long long)s->of.keys, s->of.dim);
    s->of.kv_heads = shape.dim[1], s->of.keys = shape.dim[2];
    x->dim = s->of.dim;
    return EK_OK;
}

static ek_err check_mask(lib_sdpa *s, const ek_view *mask)
{
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT];
    EK_TRY(lib_view_check(&s->mask, mask, "mask"));
    lib_view given = s->mask,
             want = {.n_dims = 4, .type = s->mask.type, .dim = {s->of.entries, s->of.heads, s->of.rows, s->of.keys}};
    if (s->mask.type == EK_TYPE_U32 || s->mask.n_dims > 4 || !lib_broadcast(&s->mask, 4, want.dim, 0))
        return ek_fail(EK_EINVAL, "mask %s does not broadcast to %s; u8, f32, f16 or bf16 are possible",
                       lib_shape(a, &given), lib_shape(b, &want));
    s->masked = true;
    return EK_OK;
}

static ek_attn_mask mask_of(const lib_view *m)
{
    return (ek_attn_mask){.data = m->data,
                          .bytes = m->type == EK_TYPE_U8,
                          .type = m->type == EK_TYPE_U8 ? EK_F32 : lib_dtype(m->type),
                          .entry = m->stride[0],
                          .head = m->stride[1],
                          .row = m->stride[2],
                          .key = m->stride[3]};
}

/* Whether the mask shows key j to any query of b. */
static bool shown(const lib_sdpa *s, int64_t b, int64_t j)
{
    const ek_attn_mask *m = &s->of.mask;
    float add;
    for (int64_t h = 0; h < (m->head ? s->of.heads : 1); h++)
        for (int64_t i = 0; i < (m->row ? s->of.rows : 1); i++)
            if (ek_attn_mask_at(m, ek_attn_mask_row(m, b, h, i), j, &add)) return true;
    return false;
}

static ek_err find_starts(lib_call *c, lib_sdpa *s, const int64_t *given)
{
    int64_t *start = lib_take_array(c, (size_t)s->of.entries, sizeof *start);
    if (!start) return EK_ENOMEM;
    for (int64_t b = 0; b < s->of.entries; b++) {
        start[b] = 0;
        if (given) {
            if (given[b] <= -FAR || given[b] >= FAR)
                return ek_fail(EK_EINVAL, "key_start %lld of batch entry %lld is out of range", (long long)given[b],
                               (long long)b);
            start[b] = given[b];
        } else if (s->masked)
            while (-start[b] < s->of.keys && !shown(s, b, -start[b])) --start[b];
    }
    s->of.key_start = start;
    return EK_OK;
}

static ek_err check_precision(lib_sdpa *s, ek_precision precision, bool dense)
{
    if (precision == EK_EXACT) return EK_OK;
    if (precision != EK_BFLOAT16)
        return ek_fail(EK_EINVAL, "precision %d, attention has EK_EXACT and EK_BFLOAT16", (int)precision);
    char q[LIB_SHAPE_TEXT], k[LIB_SHAPE_TEXT], v[LIB_SHAPE_TEXT];
    if (!dense) return ek_fail(EK_EINVAL, "EK_BFLOAT16 is for keys and values in bf16, these are quantised");
    s->of.pairs = s->q.type == EK_TYPE_BF16 && s->keys.dense.type == EK_TYPE_BF16 &&
                  s->values.dense.type == EK_TYPE_BF16;
    if (!s->of.pairs)
        return ek_fail(EK_EINVAL, "EK_BFLOAT16 is for bf16; q is %s, k %s, v %s", lib_shape(q, &s->q),
                       lib_shape(k, &s->keys.dense), lib_shape(v, &s->values.dense));
    return EK_OK;
}

/* ------------------------------------------------------------------ the work */

static ek_attn_tensor tensor_of(const lib_view *v)
{
    return (ek_attn_tensor){.data = v->data,
                            .type = lib_dtype(v->type),
                            .entry = v->stride[0],
                            .head = v->stride[1],
                            .row = v->stride[2],
                            .element = v->stride[3]};
}

static void read_quantised(const void *self, int64_t b, int64_t kv_head, int64_t j, float *to)
{
    const lib_kv *x = self;
    lib_matrix m = lib_matrix_of(&x->q, true);
    m.codes += b * x->q.codes.stride[0] + kv_head * x->q.codes.stride[1];
    m.scales += b * x->q.scales.stride[0] + kv_head * x->q.scales.stride[1];
    if (m.biases) m.biases += b * x->q.biases.stride[0] + kv_head * x->q.biases.stride[1];
    lib_decode(x->k, &m, j, 0, x->dim, to);
}

static ek_attn_operand operand_of(const lib_kv *x)
{
    if (x->quantised) return (ek_attn_operand){.read = read_quantised, .self = x};
    return (ek_attn_operand){.at = tensor_of(&x->dense)};
}

static void run(void *call, ek_attn_task_fn *task, void *arg, int64_t n_tasks)
{
    lib_run(call, task, arg, n_tasks);
}

static ek_err attend(lib_call *c, lib_sdpa *s)
{
    s->of.q = tensor_of(&s->q), s->of.y = tensor_of(&s->y);
    s->of.k = operand_of(&s->keys), s->of.v = operand_of(&s->values);
    void *memory = lib_take(c, ek_attn_tensors_bytes(&s->of, c->n_workers));
    if (!memory) return EK_ENOMEM;
    ek_attn_tensors_run(&s->of, &(ek_attn_workers){c, c->n_workers, run}, memory);
    return EK_OK;
}

static ek_err sdpa(lib_call *c, const ek_view *y, const ek_view *q, const ek_view *k, const ek_view *v,
                   const ek_qview *kq, const ek_qview *vq, const ek_sdpa_options *options)
{
    char a[LIB_SHAPE_TEXT], b[LIB_SHAPE_TEXT];
    ek_sdpa_options how = options ? *options : (ek_sdpa_options){0};
    const lib_kernels *kernels = lib_kernels_of(c->cpu);
    lib_sdpa s = {
        .of = {.attn = &kernels->attn, .convert = &kernels->convert, .causal = how.causal, .sinks = how.sinks},
        .keys.k = kernels,
        .values.k = kernels};
    lib_out out;
    lib_view yv;
    EK_TRY(lib_view_check(&s.q, q, "q"));
    EK_TRY(lib_view_check(&yv, y, "y"));
    EK_TRY(lib_out_check(&yv, "y"));
    if (s.q.n_dims != 4 || yv.n_dims != 4 || memcmp(s.q.dim, yv.dim, 4 * sizeof s.q.dim[0]) ||
        !lib_is_float(s.q.type) || !lib_is_float(yv.type))
        return ek_fail(EK_EINVAL, "q %s and y %s must have one shape [B, H, qL, D], f32, f16 or bf16",
                       lib_shape(a, &s.q), lib_shape(b, &yv));
    s.of.entries = s.q.dim[0], s.of.heads = s.q.dim[1], s.of.rows = s.q.dim[2];
    if (s.q.dim[3] < 1 || s.q.dim[3] > EK_MAX_HEAD_DIM)
        return ek_fail(EK_EINVAL, "heads of %lld elements in q %s; 1 to %d are possible", (long long)s.q.dim[3],
                       lib_shape(a, &s.q), EK_MAX_HEAD_DIM);
    s.of.dim = (int)s.q.dim[3];
    EK_TRY(check_kv(c, &s, &s.keys, k, kq, "k"));
    EK_TRY(check_kv(c, &s, &s.values, v, vq, "v"));
    if (how.mask) EK_TRY(check_mask(&s, how.mask));
    if (s.masked) s.of.mask = mask_of(&s.mask);
    if (how.window < 0)
        return ek_fail(EK_EINVAL, "a window of %lld keys; q is %s", (long long)how.window, lib_shape(a, &s.q));
    EK_TRY(check_precision(&s, how.precision, k && v));
    s.of.window = how.window < s.of.keys + s.of.rows ? how.window : 0; /* a longer window hides nothing */
    s.of.scale = how.scale != 0 ? how.scale : 1 / sqrtf((float)s.of.dim);
    if (yv.count == 0) return EK_OK;
    if (s.of.rows > (INT64_C(1) << 40) / s.of.heads)
        return ek_fail(EK_EINVAL, "q %s has too many rows", lib_shape(a, &s.q));
    EK_TRY(find_starts(c, &s, how.key_start));
    const lib_kv *kp = &s.keys, *vp = &s.values; /* views that are not given have no elements */
    EK_TRY(lib_out_begin(c, &out, &yv, 10,
                         (const lib_view *[]){&s.q, &s.mask, &kp->dense, &vp->dense, &kp->q.codes, &kp->q.scales,
                                              &kp->q.biases, &vp->q.codes, &vp->q.scales, &vp->q.biases}));
    s.y = out.view;
    EK_TRY(attend(c, &s));
    lib_out_end(c, &out);
    return EK_OK;
}

ek_status ek_sdpa(ek_view y, ek_view q, ek_view k, ek_view v, const ek_sdpa_options *options)
{
    return LIB_OPERATE(c, sdpa(&c, &y, &q, &k, &v, NULL, NULL, options));
}

ek_status ek_sdpa_quantized(ek_view y, ek_view q, const ek_qview *k, const ek_qview *v, const ek_sdpa_options *options)
{
    if (!k || !v) return lib_status(ek_fail(EK_EINVAL, "%s is missing", k ? "v" : "k"));
    return LIB_OPERATE(c, sdpa(&c, &y, &q, NULL, NULL, k, v, options));
}
