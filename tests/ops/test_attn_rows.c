/* Attention over rows of floats: the kernels of every instruction set against the definition (ops/attn/attn_rows.c),
 * bit for bit, and weights with hidden keys against their contract. That the definition is attention:
 * tests/lib/test_sdpa.c. */
#include <math.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "check.h"
#include "ops/attn/attn_rows.h"
#include "ops/bf16_step.h"
#include "ops/convert.h"
#include "ops/tree.h"

enum { MAX_DIM = EK_MAX_HEAD_DIM };

static ek_attn_rows_ops ops_of(unsigned cpu)
{
    ek_attn_rows_ops ops;
    ek_attn_rows_init(&ops, cpu);
    return ops;
}

/* ------------------------------------------------------------------ rows of keys and values */

/* Keys or values behind whose last element memory ends. */
typedef struct rows {
    ek_dtype type;
    int n, dim;
    void *memory;
    size_t bytes;
    uint8_t *at;
} rows;

static ptrdiff_t row_bytes(const rows *x)
{
    return x->dim * (x->type == EK_F32 ? 4 : 2);
}

static float ordinary(uint64_t i)
{
    return ldexpf(check_uniform(8, i), (int)(i % 9) - 4);
}

/* bf16 numbers around every bound of Form B among ordinary ones: zeros, what counts as zero, the smallest that does
 * not, and what cancels. */
static uint16_t odd_bf16(uint64_t seed, uint64_t i)
{
    static const uint16_t odd[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x8080, 0x2000, 0x9f80, 0x3f80, 0xbf80};
    const float u = fabsf(check_uniform(seed, 2 * i));
    if (u < 0.3f) return odd[(int)(u / 0.3f * 10) % 10];
    return ek_f32_bf16(ldexpf(check_uniform(seed, 2 * i + 1), u < 0.5f ? -64 : 0));
}

static rows rows_new(ek_dtype type, int n, int dim, bool odd)
{
    rows x = {.type = type, .n = n, .dim = dim};
    const size_t count = (size_t)n * (size_t)dim, size = type == EK_F32 ? 4 : 2, used = count * size;
    x.bytes = (used + 63) / 64 * 64;
    x.memory = check_alloc(x.bytes);
    x.at = (uint8_t *)x.memory + x.bytes - used;
    for (size_t i = 0; i < count; i++)
        ek_store_float(x.at + i * size, type, odd ? ek_bf16_f32(odd_bf16(1, i)) : ordinary(i));
    return x;
}

static void rows_free(const rows *x)
{
    check_free(x->memory, x->bytes);
}

/* The last row is among the keys; some rows come twice, none in order. */
static void set_keys(ek_score_block *b, const rows *x)
{
    for (int j = 0; j < EK_SCORE_KEYS; j++) b->key[j] = x->at + (x->n - 1 - j * 5 % x->n) * row_bytes(x);
}

/* ------------------------------------------------------------------ scores */

static float want[EK_TILE * EK_SEGMENT], got[EK_TILE * EK_SEGMENT];

static void check_scores(const char *op, const char *isa, const ek_score_block *b)
{
    for (int i = 0; i < b->n_q; i++)
        check_bits(op, isa, want + i * EK_SEGMENT, got + i * EK_SEGMENT, EK_SCORE_KEYS,
                   "%s, head size %d, query %d of %d", ek_dtype_name(b->type), b->dim, i, b->n_q);
}

static const int dims[] = {1, 3, 8, 17, 33, 64, 72, 96, 100, 128, 250, 256, 257, 288, MAX_DIM};
enum { N_DIMS = sizeof dims / sizeof *dims };

static void scores_for(const rows *x, int n_q)
{
    static float q[EK_TILE * EK_Q_STRIDE];
    memset(q, 0, sizeof q);
    for (int i = 0; i < n_q; i++) check_fill_wide(q + i * EK_Q_STRIDE, (size_t)x->dim, (uint64_t)i);
    ek_score_block b = {.type = x->type, .dim = x->dim, .q = q, .n_q = n_q, .e = want};
    set_keys(&b, x);
    ops_of(0).scores(&b);
    b.e = got;
    CHECK_ISAS(isa, cpu)
    {
        memset(got, 0xff, sizeof got);
        ops_of(cpu).scores(&b);
        check_scores("scores", isa, &b);
    }
    if (x->type != EK_F32) return;
    static _Alignas(64) float turned[EK_SCORE_KEYS * MAX_DIM];
    for (int j = 0; j < EK_SCORE_KEYS; j++)
        for (int d = 0; d < x->dim; d++) memcpy(&turned[16 * d + j], b.key[j] + 4 * d, 4);
    memset(b.key, 0, sizeof b.key);
    b.turned = turned;
    CHECK_ISAS(isa, cpu)
    {
        memset(got, 0xff, sizeof got);
        ops_of(cpu).scores(&b);
        check_scores("turned scores", isa, &b);
    }
}

static void scores(void **state)
{
    (void)state;
    for (ek_dtype t = EK_F32; t <= EK_BF16; t++)
        for (int d = 0; d < N_DIMS; d++) {
            const rows x = rows_new(t, 13, dims[d], false);
            for (int n_q = 1; n_q <= EK_TILE; n_q++) scores_for(&x, n_q);
            rows_free(&x);
        }
}

/* Head sizes of Form B, where a vector holds 32 dims. */
static const int dims_b[] = {1, 2, 7, 16, 31, 32, 33, 64, 72, 96, 130, 256, 290, 511, MAX_DIM};
enum { N_DIMS_B = sizeof dims_b / sizeof *dims_b };

static void scores_bf16_for(const rows *x, int n_q)
{
    static _Alignas(64) uint16_t q[EK_TILE * MAX_DIM];
    memset(q, 0, sizeof q);
    for (int i = 0; i < n_q; i++)
        for (int d = 0; d < x->dim; d++) q[ek_q16(i, d)] = odd_bf16(2, (uint64_t)(i * MAX_DIM + d));
    ek_score_block b = {
        .type = EK_BF16, .dim = x->dim, .q16 = q, .scale = n_q % 2 ? 1 : 0x1.3p-3f, .n_q = n_q, .e = want};
    set_keys(&b, x);
    ops_of(0).scores_bf16(&b);
    b.e = got;
    CHECK_ISAS(isa, cpu)
    {
        memset(got, 0xff, sizeof got);
        ops_of(cpu).scores_bf16(&b);
        check_scores("scores_bf16", isa, &b);
    }
}

static void scores_bf16(void **state)
{
    (void)state;
    for (int d = 0; d < N_DIMS_B; d++) {
        const rows x = rows_new(EK_BF16, 13, dims_b[d], true);
        for (int n_q = 1; n_q <= EK_TILE; n_q++) scores_bf16_for(&x, n_q);
        rows_free(&x);
    }
}

/* ------------------------------------------------------------------ values */

static float want_o[EK_TILE * MAX_DIM], got_o[EK_TILE * MAX_DIM];

static void check_values(const char *op, const char *isa, const ek_value_run *r)
{
    for (int i = 0; i < r->n_q; i++)
        check_bits(op, isa, want_o + i * r->ldo, got_o + i * r->ldo, (size_t)r->dim,
                   "%s, head size %d, %d keys from slot %d, query %d of %d", ek_dtype_name(r->type), r->dim, r->n_keys,
                   r->slot, i, r->n_q);
}

/* The last n_keys rows of x. */
static void values_for(const rows *x, int n_q, int n_keys)
{
    static float e[EK_TILE * EK_SEGMENT];
    check_fill_wide(e, EK_TILE * EK_SEGMENT, 9);
    ek_value_run r = {.v = x->at + (x->n - n_keys) * row_bytes(x),
                      .stride = row_bytes(x),
                      .n_keys = n_keys,
                      .type = x->type,
                      .dim = x->dim,
                      .n_q = n_q,
                      .e = e + 5,
                      .o = want_o,
                      .ldo = (x->dim + 15) / 16 * 16};
    check_fill_wide(want_o, EK_TILE * MAX_DIM, 10);
    ops_of(0).values(&r);
    r.o = got_o;
    CHECK_ISAS(isa, cpu)
    {
        check_fill_wide(got_o, EK_TILE * MAX_DIM, 10);
        ops_of(cpu).values(&r);
        check_values("values", isa, &r);
    }
}

static void values(void **state)
{
    (void)state;
    for (ek_dtype t = EK_F32; t <= EK_BF16; t++)
        for (int d = 0; d < N_DIMS; d++) {
            const rows x = rows_new(t, 40, dims[d], false);
            for (int n_q = 1; n_q <= EK_TILE; n_q++)
                for (int n_keys = 1; n_keys <= x.n; n_keys += 13) values_for(&x, n_q, n_keys);
            rows_free(&x);
        }
}

/* fresh: o holds garbage that counts as +0; else it holds zeros. */
static void values_bf16_for(const rows *x, int n_q, int slot, int n_keys, bool fresh)
{
    static uint16_t p[EK_TILE * EK_SEGMENT];
    static float e[EK_TILE * EK_SEGMENT];
    for (int i = 0; i < EK_TILE * EK_SEGMENT; i++) p[i] = odd_bf16(3, (uint64_t)i) & 0x7fff, e[i] = ek_bf16_f32(p[i]);
    ek_value_run r = {.v = x->at + (x->n - n_keys) * row_bytes(x),
                      .stride = row_bytes(x),
                      .n_keys = n_keys,
                      .slot = slot,
                      .type = EK_BF16,
                      .dim = x->dim,
                      .n_q = n_q,
                      .e = e + slot,
                      .p = p + slot,
                      .o = want_o,
                      .fresh = fresh,
                      .ldo = (x->dim + 31) / 32 * 32};
    memset(want_o, fresh ? 0xff : 0, sizeof want_o);
    ops_of(0).values_bf16(&r);
    r.o = got_o;
    CHECK_ISAS(isa, cpu)
    {
        const ek_attn_rows_ops ops = ops_of(cpu);
        memset(got_o, fresh ? 0xff : 0, sizeof got_o);
        ops.values_bf16(&r);
        for (int i = 0; i < n_q && ops.order_bf16; i++) ops.order_bf16(got_o + i * r.ldo, x->dim);
        check_values(fresh ? "values_bf16, fresh" : "values_bf16", isa, &r);
    }
}

static void values_bf16(void **state)
{
    (void)state;
    for (int d = 0; d < N_DIMS_B; d++) {
        const rows x = rows_new(EK_BF16, 150, dims_b[d], true);
        for (int n_q = 1; n_q <= EK_TILE; n_q++)
            for (int slot = 0; slot < 3; slot++)
                for (int n = 1; n < x.n; n += n < 4 ? 1 : n < 40 ? 29 : 60) values_bf16_for(&x, n_q, slot, n, n % 2);
        rows_free(&x);
    }
}

/* A whole segment of rows that lie one after the other, and what is fetched while it is added. */
static void values_bf16_segment(void **state)
{
    (void)state;
    for (int dim = 64; dim <= MAX_DIM; dim *= 2) {
        const rows x = rows_new(EK_BF16, EK_SEGMENT, dim, true);
        for (int n_q = 1; n_q <= EK_TILE; n_q++) values_bf16_for(&x, n_q, 0, EK_SEGMENT, true);
        rows_free(&x);
    }
}

/* ------------------------------------------------------------------ weights */

static void combine(void **state)
{
    (void)state;
    enum { N = 512 };
    float a[N], want_b[N], b[N];
    check_fill_wide(a, N, 12);
    for (int n = 16; n <= N; n += 16) {
        check_fill_wide(want_b, N, 11);
        ops_of(0).combine(want_b, a, 0x1p-3f, 0x1p-120f, n);
        CHECK_ISAS(isa, cpu)
        {
            check_fill_wide(b, N, 11);
            ops_of(cpu).combine(b, a, 0x1p-3f, 0x1p-120f, n);
            check_bits("combine", isa, want_b, b, N, "%d of %d elements", n, N);
        }
    }
}

/* Weights of one query in both precisions, and their sum. */
typedef struct weighed {
    float e[EK_SEGMENT], l;
    uint16_t p[EK_SEGMENT];
    int m;
} weighed;

static void check_weighed(const char *op, const char *isa, const weighed *w, const weighed *g, int from, int to)
{
    check_bits(op, isa, w->e, g->e, EK_SEGMENT, "weights of slots %d to %d", from, to);
    check_bits(op, isa, &w->l, &g->l, 1, "sum of slots %d to %d", from, to);
    check_bytes(op, isa, w->p, g->p, sizeof w->p, "weights in bf16 of slots %d to %d", from, to);
    check_bytes(op, isa, &w->m, &g->m, sizeof w->m, "greatest exponent of slots %d to %d", from, to);
}

static void round_bf16(void **state)
{
    (void)state;
    for (int from = 0; from < 40; from += 13)
        for (int to = from + 1; to <= EK_SEGMENT; to += 51) {
            weighed start = {0};
            for (int j = from; j < to; j++) start.e[j] = ldexpf(fabsf(check_uniform(4, (uint64_t)j)), -(j * 7 % 120));
            weighed w = start;
            ops_of(0).round_bf16(w.e, w.p, from, to, &w.l);
            CHECK_ISAS(isa, cpu)
            {
                weighed g = start;
                ops_of(cpu).round_bf16(g.e, g.p, from, to, &g.l);
                check_weighed("round_bf16", isa, &w, &g, from, to);
            }
        }
}

/* Scores of which some are -inf; wide: most weights fall below 2^-125 of the largest. */
static void fill_scores(float *e, uint64_t seed, bool wide)
{
    for (int j = 0; j < EK_SEGMENT; j++)
        e[j] = j % 29 == 3 ? -INFINITY : check_uniform(seed, (uint64_t)j) * (wide ? 100 : 5);
}

/* The weights in one pass are the weights of Form A, then rounded. */
static void weights_bf16(void **state)
{
    (void)state;
    CHECK_ISAS(isa, cpu)
    {
        const ek_attn_rows_ops ops = ops_of(cpu);
        for (int from = 0; ops.weights_bf16 && from < 40; from += 8)
            for (int to = from + 1; to <= EK_SEGMENT; to += to % 16 ? 3 : 23) {
                weighed w = {0};
                fill_scores(w.e, (uint64_t)to, from % 16 == 0);
                weighed g = w;
                ek_attn_segment segment = {.n_q = 1, .from = {from}, .to = {to}, .e = w.e};
                ops.weights(&segment);
                w.m = segment.m[0];
                ops_of(0).round_bf16(w.e, w.p, from, to, &w.l);
                ops.weights_bf16(g.e, g.p, from, to, &g.m, &g.l);
                check_weighed("weights_bf16", isa, &w, &g, from, to);
            }
    }
}

/* ------------------------------------------------------------------ hidden keys */

/* Query i of a tile: nothing, everything, a range, and holes of several kinds. */
static bool shown(int i, int j)
{
    switch (i) {
    case 0: return j % 2;
    case 1: return true;
    case 2: return false;
    case 3: return j >= 70 && j < 201;
    case 4: return j == 3 || j == 255;
    case 5: return j < 64 || j >= 192;
    case 6: return j % 17 < 11;
    default: return j == 128;
    }
}

static ek_visible visible_new(void)
{
    ek_visible v = {0};
    memset(v.all, 0xff, sizeof v.all);
    for (int i = 0; i < EK_TILE; i++) {
        for (int j = 0; j < EK_SEGMENT; j++)
            if (shown(i, j)) v.keys[i][j / 64] |= UINT64_C(1) << j % 64;
        ek_visible_add(&v, i);
    }
    return v;
}

static void visible_keys(void **state)
{
    (void)state;
    const ek_visible v = visible_new();
    static const int from[EK_TILE] = {1, 0, 0, 70, 3, 0, 0, 128}, to[EK_TILE] = {256, 256, 0, 201, 256, 256, 256, 129};
    static const bool holes[EK_TILE] = {true, false, false, false, true, true, true, false};
    assert_int_equal(v.live, 0xff & ~(1u << 2));
    for (int i = 0; i < EK_TILE; i++) {
        assert_int_equal(v.from[i], from[i]);
        assert_int_equal(v.to[i], to[i]);
        assert_int_equal(v.holes[i], holes[i]);
    }
    for (int j = 0; j < EK_SEGMENT; j++) {
        bool any = false, all = true;
        for (int i = 0; i < EK_TILE; i++)
            if (i != 2) any |= shown(i, j), all &= shown(i, j);
        assert_int_equal(ek_visible_at(v.any, j), any);
        assert_int_equal(ek_visible_at(v.all, j), all);
    }
}

/* Query i's weights by the definition of one query whose hidden scores are -inf; low: visible scores are -inf too, and
 * have equal weights. */
static void weigh_one(float *e, int i, bool low, bool pairs, float *l, int *m)
{
    float lane[EK_LANES] = {0};
    int from = 0, to = EK_SEGMENT;
    while (from < EK_SEGMENT && !shown(i, from)) from++;
    while (to > from && !shown(i, to - 1)) to--;
    for (int j = 0; j < EK_SEGMENT; j++)
        if (low || !shown(i, j)) e[j] = -INFINITY;
    ek_attn_segment segment = {.n_q = 1, .from = {from}, .to = {to}, .e = e};
    ops_of(0).weights(&segment);
    for (int j = 0; j < EK_SEGMENT; j++) {
        if (!shown(i, j)) e[j] = 0;
        else if (pairs) e[j] = ek_bf16_f32(ek_f32_bf16(e[j]));
        lane[j % EK_LANES] += e[j];
    }
    *l = ek_add_lanes(lane), *m = segment.m[0];
}

static void weigh_case(const char *isa, unsigned cpu, bool low, bool pairs)
{
    static float e[EK_TILE * EK_SEGMENT], one[EK_SEGMENT];
    static uint16_t p[EK_TILE * EK_SEGMENT];
    const ek_attn_rows_ops ops = ops_of(cpu);
    const ek_visible v = visible_new();
    const char *form = pairs ? "B" : "A", *kind = low ? "only -inf" : "ordinary";
    ek_attn_segment segment = {.n_q = EK_TILE, .head_dim = 64, .e = e};
    memset(p, 0xff, sizeof p);
    for (int i = 0; i < EK_TILE; i++) {
        fill_scores(e + i * EK_SEGMENT, (uint64_t)i, false);
        for (int j = 0; j < EK_SEGMENT; j++) /* what hidden keys leave may be anything */
            if (!shown(i, j)) e[i * EK_SEGMENT + j] = j % 3 ? NAN : INFINITY;
            else if (low) e[i * EK_SEGMENT + j] = -INFINITY;
    }
    ek_attn_rows_weigh(&ops, &segment, &v, pairs ? p : NULL, NULL, 0);
    for (int i = 0; i < EK_TILE; i++) {
        float l;
        int m;
        fill_scores(one, (uint64_t)i, false);
        weigh_one(one, i, low, pairs, &l, &m);
        for (int j = 0; j < EK_SEGMENT; j++) {
            if (j < v.from[i] || j >= v.to[i]) continue; /* not read by values */
            check_bits("weigh", isa, &one[j], &e[i * EK_SEGMENT + j], 1, "form %s, %s, query %d, slot %d", form, kind,
                       i, j);
            const uint16_t rounded = ek_f32_bf16(one[j]);
            if (pairs)
                check_bytes("weigh", isa, &rounded, &p[i * EK_SEGMENT + j], sizeof rounded,
                            "form %s in bf16, %s, query %d, slot %d", form, kind, i, j);
        }
        if (!(v.live >> i & 1)) {
            memset(one, 0, sizeof one);
            check_bits("weigh", isa, one, e + i * EK_SEGMENT, EK_SEGMENT, "form %s, query %d sees nothing", form, i);
            if (pairs)
                check_bytes("weigh", isa, one, p + i * EK_SEGMENT, sizeof *p * EK_SEGMENT,
                            "form %s in bf16, query %d sees nothing", form, i);
            continue;
        }
        check_bits("weigh", isa, &l, &segment.l[i], 1, "sum, form %s, %s, query %d", form, kind, i);
        check_bytes("weigh", isa, &m, &segment.m[i], sizeof m, "exponent, form %s, %s, query %d", form, kind, i);
    }
}

static void weigh(void **state)
{
    (void)state;
    CHECK_ISAS(isa, cpu)
    for (int low = 0; low < 2; low++)
        for (int pairs = 0; pairs < 2; pairs++) weigh_case(isa, cpu, low, pairs);
}

/* This machine's instruction does what the step says, or the library does without it. */
static void bf16_sound(void **state)
{
    (void)state;
#if defined(__x86_64__)
    if (ek_cpu_detect() & EK_CPU_BF16) {
        assert_true(ek_bf16_sound());
        return;
    }
#endif
    skip();
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CHECK_TEST(scores),      CHECK_TEST(scores_bf16),         CHECK_TEST(values),
        CHECK_TEST(values_bf16), CHECK_TEST(values_bf16_segment), CHECK_TEST(combine),
        CHECK_TEST(round_bf16),  CHECK_TEST(weights_bf16),        CHECK_TEST(visible_keys),
        CHECK_TEST(weigh),       CHECK_TEST(bf16_sound),
    };
    return CHECK_RUN(argc, argv, tests);
}
