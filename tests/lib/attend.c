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

/* Query row i of head h; kd and vd are k and v. False if it sees nothing. */
static bool attend(double *out, const ek_view *q, const ek_view *k, const double *kd, const double *vd,
                   const ek_sdpa_options *o, int64_t b, int64_t h, int64_t i)
{
    int64_t kl = k->dim[2], ql = q->dim[2], d = q->dim[3], kv = h / (q->dim[1] / k->dim[1]),
            first = (b * k->dim[1] + kv) * kl;
    double *p = malloc(sizeof *p * (size_t)(kl + 1)), most = -INFINITY, total = 0,
           scale = o->scale != 0 ? o->scale : 1 / sqrt((double)d);
    double qd[512];
    bool any = false;
    for (int64_t n = 0; n < d; n++) qd[n] = ref_at(q, (int64_t[]){b, h, i, n}) * scale, out[n] = 0;
    for (int64_t j = 0; j < kl; j++) {
        int64_t at = i + kl - ql;
        double add = 0;
        bool seen = (!o->causal || j <= at) && (!o->window || j > at - o->window);
        if (o->key_start && o->key_start[b] + j < 0) seen = false;
        if (seen && o->mask) {
            add = mask_at(o->mask, (int64_t[]){b, h, i, j});
            if (o->mask->type == EK_TYPE_U8) seen = add != 0, add = 0;
            else seen = add > -1e30;
        }
        p[j] = NAN;
        if (!seen) continue;
        p[j] = dot(qd, kd + (first + j) * d, d) + add;
        any = true;
        if (p[j] > most) most = p[j];
    }
    if (o->sinks && o->sinks[h] > most) most = o->sinks[h];
    if (o->sinks) total = exp(o->sinks[h] - most);
    for (int64_t j = 0; j < kl; j++) {
        if (isnan(p[j])) continue;
        const double e = exp(p[j] - most), *row = vd + (first + j) * d;
        total += e;
        for (int64_t n = 0; n < d; n++) out[n] += e * row[n];
    }
    for (int64_t n = 0; n < d && any; n++) out[n] /= total;
    free(p);
    return any;
}

void attend_check(const ek_view *y, const ek_view *q, const ek_view *k, const ek_view *v, const ek_sdpa_options *o,
                  int step, double rtol, double atol, const char *shape, ...)
{
    char text[256];
    double want[512];
    va_list ap;
    va_start(ap, shape);
    vsnprintf(text, sizeof text, shape, ap);
    va_end(ap);
    ek_sdpa_options none = {0};
    if (!o) o = &none;
    double *kd = widened(k), *vd = widened(v);
    for (int64_t b = 0; b < q->dim[0]; b++)
        for (int64_t h = 0; h < q->dim[1]; h++)
            for (int64_t i = (b + h) % step % q->dim[2]; i < q->dim[2]; i += step) {
                bool any = attend(want, q, k, kd, vd, o, b, h, i);
                for (int64_t n = 0; n < q->dim[3]; n++) {
                    double got = ref_at(y, (int64_t[]){b, h, i, n});
                    bool ok = any ? fabs(got - want[n]) <= atol + rtol * fabs(want[n]) : got == 0 && !signbit(got);
                    if (!ok)
                        fail_msg("%s: batch %d head %d row %d element %d: want %.9g, got %.9g", text, (int)b, (int)h,
                                 (int)i, (int)n, any ? want[n] : 0, got);
                }
            }
    free(kd), free(vd);
}

static ek_precision precision;

ek_status attend_run(ek_view y, ek_view q, ek_view k, ek_view v, const ek_sdpa_options *o)
{
    ek_sdpa_options how = o ? *o : (ek_sdpa_options){0};
    how.precision = precision;
    return ek_sdpa(y, q, k, v, &how);
}

attend_scene attend_new(int form, int b, int h, int hkv, int ql, int kl, int d, double q_most, double v_most)
{
    const ek_type t = attend_type(form);
    precision = form == ATTEND_PAIRS ? EK_BFLOAT16 : EK_EXACT;
    return (attend_scene){.q = ref_uniforms(t, 1, 0, q_most, 4, b, h, ql, d),
                          .k = ref_uniforms(t, 2, 0, q_most, 4, b, hkv, kl, d),
                          .v = ref_uniforms(t, 3, 0, v_most, 4, b, hkv, kl, d),
                          .y = ref_new(t, 4, b, h, ql, d)};
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

attend_scene attend_f32(int form, int b, int h, int hkv, int ql, int kl, int d)
{
    attend_scene s = attend_new(form, b, h, hkv, ql, kl, d, 1, 1);
    s.y = ref_like(&s.y, EK_TYPE_F32);
    return s;
}
