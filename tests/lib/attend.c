#include "attend.h"

#include <math.h>
#include <stdio.h>

static double mask_at(const ek_view *m, const int64_t *at)
{
    int64_t place = 0;
    for (int d = 0; d < m->n_dims; d++)
        if (m->dim[d] > 1) place += at[4 - m->n_dims + d] * m->stride[d];
    ek_view one = *m;
    one.n_dims = 1, one.dim[0] = 1;
    size_t size = m->type == EK_TYPE_U8 ? 1 : m->type == EK_TYPE_F32 ? 4 : 2;
    one.data = (char *)m->data + place * (int64_t)size;
    return ref_get(&one, 0);
}

/* [B, Hkv, kL, D] as dense float64, which the many rows of a check share. */
static double *widened(const ek_view *x)
{
    int64_t n = ref_count(x), d = x->dim[3];
    double *out = malloc(sizeof *out * (size_t)(n + 1));
    for (int64_t row = 0; row < n / d; row++)
        for (int64_t i = 0; i < d; i++)
            out[row * d + i] = ref_at(
                x, (int64_t[]){row / x->dim[2] / x->dim[1], row / x->dim[2] % x->dim[1], row % x->dim[2], i});
    return out;
}

/* Four sums at a time: the order does not matter to a reference, the time of a whole grid does. */
static double dot(const double *a, const double *b, int64_t n)
{
    double s[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) s[k] += a[i + k] * b[i + k];
    for (; i < n; i++) s[0] += a[i] * b[i];
    return s[0] + s[1] + s[2] + s[3];
}

/* Whether key j is visible to query (b, h, i); *add is what the mask adds to its score. */
static bool visible(const attend_scene *s, const ek_sdpa_options *o, int64_t b, int64_t h, int64_t i, int64_t j,
                    double *add)
{
    const int64_t own = i + s->k.dim[2] - s->q.dim[2]; /* the key that stands where the query does */
    *add = 0;
    if ((o->causal && j > own) || (o->window && j <= own - o->window)) return false;
    if (o->key_start && o->key_start[b] + j < 0) return false;
    if (!o->mask) return true;
    const double x = mask_at(o->mask, (int64_t[]){b, h, i, j});
    if (o->mask->type == EK_TYPE_U8) return x != 0;
    *add = x;
    return x > -1e30;
}

/* Query row i of head h; kd and vd are k and v. False if no key is visible to it. */
static bool attend(double *out, const attend_scene *s, const double *kd, const double *vd, const ek_sdpa_options *o,
                   int64_t b, int64_t h, int64_t i)
{
    const int64_t kl = s->k.dim[2], d = s->q.dim[3], first = (b * s->k.dim[1] + h / (s->q.dim[1] / s->k.dim[1])) * kl;
    const double scale = o->scale != 0 ? o->scale : 1 / sqrt((double)d);
    double *p = malloc(sizeof *p * (size_t)(kl + 1)), qd[512], max = -INFINITY, total = 0, add;
    bool any = false;
    for (int64_t n = 0; n < d; n++) qd[n] = ref_at(&s->q, (int64_t[]){b, h, i, n}) * scale, out[n] = 0;
    for (int64_t j = 0; j < kl; j++) {
        p[j] = NAN;
        if (!visible(s, o, b, h, i, j, &add)) continue;
        p[j] = dot(qd, kd + (first + j) * d, d) + add;
        any = true;
        if (p[j] > max) max = p[j];
    }
    if (o->sinks && o->sinks[h] > max) max = o->sinks[h];
    if (o->sinks) total = exp(o->sinks[h] - max);
    for (int64_t j = 0; j < kl; j++) {
        if (isnan(p[j])) continue;
        const double e = exp(p[j] - max), *row = vd + (first + j) * d;
        total += e;
        for (int64_t n = 0; n < d; n++) out[n] += e * row[n];
    }
    for (int64_t n = 0; n < d && any; n++) out[n] /= total;
    free(p);
    return any;
}

/* ------------------------------------------------------------------ scenes */

attend_scene attend_new(int form, attend_sizes n, double q_max, double v_max)
{
    const ek_type t = attend_type(form);
    return (attend_scene){.form = form,
                          .q = ref_uniforms(t, 1, 0, q_max, 4, n.batch, n.heads, n.rows, n.dim),
                          .k = ref_uniforms(t, 2, 0, q_max, 4, n.batch, n.kv_heads, n.keys, n.dim),
                          .v = ref_uniforms(t, 3, 0, v_max, 4, n.batch, n.kv_heads, n.keys, n.dim),
                          .y = ref_new(t, 4, n.batch, n.heads, n.rows, n.dim)};
}

attend_scene attend_f32(int form, attend_sizes n)
{
    attend_scene s = attend_new(form, n, 1, 1);
    s.y = ref_like(&s.y, EK_TYPE_F32);
    return s;
}

attend_scene attend_keys(attend_scene s, int64_t from, int64_t to)
{
    s.k = ek_view_slice(s.k, 2, from, to), s.v = ek_view_slice(s.v, 2, from, to);
    return s;
}

attend_scene attend_rows(attend_scene s, int64_t from, int64_t to)
{
    s.q = ek_view_slice(s.q, 2, from, to), s.y = ek_view_slice(s.y, 2, from, to);
    return s;
}

attend_scene attend_entry(attend_scene s, int64_t b)
{
    s.q = ek_view_slice(s.q, 0, b, b + 1), s.y = ek_view_slice(s.y, 0, b, b + 1);
    s.k = ek_view_slice(s.k, 0, b, b + 1), s.v = ek_view_slice(s.v, 0, b, b + 1);
    return s;
}

attend_scene attend_heads(attend_scene s, int64_t from, int64_t to)
{
    const int64_t ratio = s.q.dim[1] / s.k.dim[1], first = from / ratio, end = (to - 1) / ratio + 1;
    s.q = ek_view_slice(s.q, 1, from, to), s.y = ek_view_slice(s.y, 1, from, to);
    s.k = ek_view_slice(s.k, 1, first, end), s.v = ek_view_slice(s.v, 1, first, end);
    return s;
}

void attend_set(const attend_scene *s, const ek_view *kv, int64_t h, int64_t j, int64_t d, double x)
{
    const int64_t *n = s->k.dim;
    for (int64_t b = 0; b < n[0]; b++) ref_set(kv, ((b * n[1] + h) * n[2] + j) * n[3] + d, x);
}

void attend_options(ek_sdpa_options *o, ek_view *mask, enum attend_mask kind, const attend_scene *s, double scale)
{
    const int64_t *q = s->q.dim;
    int b = (int)q[0], h = (int)q[1], ql = (int)q[2], kl = (int)s->k.dim[2];
    *o = (ek_sdpa_options){.scale = (float)scale, .causal = kind == ATTEND_CAUSAL};
    if (kind == ATTEND_ADDED) *mask = ref_uniforms(EK_TYPE_F32, 4, 0, 0.5, 4, b, h, ql, kl);
    if (kind == ATTEND_BOOL) {
        *mask = ref_new(EK_TYPE_U8, 4, b, h, ql, kl);
        for (int64_t i = 0, n = ref_count(mask); i < n; i++)
            ((uint8_t *)mask->data)[i] = ref_uniform(5, (uint64_t)i) < 0.5;
    }
    if (kind == ATTEND_ADDED || kind == ATTEND_BOOL) o->mask = mask;
}

/* ------------------------------------------------------------------ calls and checks */

static ek_sdpa_options options_of(const attend_scene *s, const ek_sdpa_options *o)
{
    ek_sdpa_options how = o ? *o : (ek_sdpa_options){0};
    how.precision = s->form == ATTEND_PAIRS ? EK_BFLOAT16 : EK_EXACT;
    return how;
}

void attend_run(const attend_scene *s, const ek_sdpa_options *o)
{
    const ek_sdpa_options how = options_of(s, o);
    MUST(ek_sdpa(s->y, s->q, s->k, s->v, &how));
}

ek_view attend_fresh(const attend_scene *s, const ek_sdpa_options *o)
{
    attend_scene again = *s;
    again.y = ref_like(&s->y, s->y.type);
    attend_run(&again, o);
    return again.y;
}

enum { CASE_TEXT = 512 };

/* What a failing check prints of its case. */
static void case_text(char *to, const attend_scene *s, const ek_sdpa_options *o, const char *shape, va_list ap)
{
    static const char *const forms[] = {"f32", "f16", "bf16", "bf16 products"};
    const int form = s->form == ATTEND_PAIRS ? 3 : s->form == EK_TYPE_BF16 ? 2 : s->form == EK_TYPE_F16;
    int n = vsnprintf(to, CASE_TEXT / 2, shape, ap);
    if (n >= CASE_TEXT / 2) n = CASE_TEXT / 2 - 1;
    snprintf(to + n, (size_t)(CASE_TEXT - n), ": %s, q [%d, %d, %d, %d], k [%d, %d]%s, window %lld%s%s%s", forms[form],
             (int)s->q.dim[0], (int)s->q.dim[1], (int)s->q.dim[2], (int)s->q.dim[3], (int)s->k.dim[1], (int)s->k.dim[2],
             o->causal ? ", causal" : "", (long long)o->window, o->mask ? ", mask" : "", o->sinks ? ", sinks" : "",
             o->key_start ? ", key_start" : "");
}

void attend_same(const ek_view *want, const attend_scene *s, const ek_sdpa_options *o, const char *shape, ...)
{
    char text[CASE_TEXT];
    const ek_sdpa_options how = options_of(s, o);
    const ek_view got = attend_fresh(s, o);
    va_list ap;
    va_start(ap, shape);
    case_text(text, s, &how, shape, ap);
    va_end(ap);
    ref_same(want, &got, "%s", text);
}

void attend_check(const attend_scene *s, const ek_sdpa_options *o, int step, double rtol, double atol,
                  const char *shape, ...)
{
    char text[CASE_TEXT];
    double want[512];
    const ek_sdpa_options how = options_of(s, o);
    va_list ap;
    va_start(ap, shape);
    case_text(text, s, &how, shape, ap);
    va_end(ap);
    double *kd = widened(&s->k), *vd = widened(&s->v);
    for (int64_t b = 0; b < s->q.dim[0]; b++)
        for (int64_t h = 0; h < s->q.dim[1]; h++)
            for (int64_t i = (b + h) % step % s->q.dim[2]; i < s->q.dim[2]; i += step) {
                const bool any = attend(want, s, kd, vd, &how, b, h, i);
                for (int64_t n = 0; n < s->q.dim[3]; n++) {
                    const double got = ref_at(&s->y, (int64_t[]){b, h, i, n});
                    if (any ? fabs(got - want[n]) <= atol + rtol * fabs(want[n]) : got == 0 && !signbit(got)) continue;
                    print_error("%s\nbatch %d head %d row %d element %d: want %.9g, got %.9g\n", text, (int)b, (int)h,
                                (int)i, (int)n, any ? want[n] : 0, got);
                    ref_again();
                }
            }
    free(kd), free(vd);
}
