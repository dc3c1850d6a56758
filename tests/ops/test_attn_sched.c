/* The scheduler of attention by itself: leaves are made-up numbers, tasks run in any order on any worker, and the
 * result of each query is T over the leaves that it sees, computed by halving. */
#include <stdlib.h>
#include <string.h>

#include "base/hash/rng.h"
#include "ops/math.h"
#include "check.h"
#include "ops/attn/attn_sched.h"
#include "tensor/dtype.h"

enum { LDO = 16, MAX_TILES = 40, MAX_WORKERS = 5 };

/* Tiles over made-up keys. Odd segments of a masked source are hidden from odd queries. */
typedef struct fake {
    uint64_t seed;
    int n_tiles, n_workers;
    bool masked, sinks;
    int n_q[MAX_TILES];
    int64_t lo[MAX_TILES][EK_TILE], end[MAX_TILES][EK_TILE];
    float got[MAX_TILES][EK_TILE][LDO];
    int results[MAX_TILES][EK_TILE];
} fake;

typedef struct sum {
    int m;
    float l, o[LDO];
} sum;

static bool hidden(const fake *f, int i, int64_t seg)
{
    return f->masked && i % 2 && seg % 2;
}

static bool has_visible(const fake *f, int tile, int i, int64_t seg)
{
    const int64_t lo = f->lo[tile][i], end = f->end[tile][i];
    return lo < end && seg >= lo / EK_SEGMENT && seg <= (end - 1) / EK_SEGMENT && !hidden(f, i, seg);
}

/* The leaf of a query: a function of what it is, not of who asks. */
static sum leaf_of(const fake *f, int tile, int i, int64_t seg)
{
    sum s;
    const uint64_t at = ek_mix64(f->seed + (uint64_t)seg) + (uint64_t)(tile * EK_TILE + i);
    s.m = (int)(ek_mix64(at) % 7);
    s.l = 1 + check_uniform(at, 1) * 0.4f;
    for (int d = 0; d < LDO; d++) s.o[d] = check_uniform(at, (uint64_t)(2 + d));
    return s;
}

/* T over leaves [first, first + n) of the list, by halving at the largest power of two below n. */
static sum halve(const sum *leaf, int n)
{
    if (n == 1) return leaf[0];
    int half = 1;
    while (2 * half < n) half *= 2;
    sum a = halve(leaf, half), b = halve(leaf + half, n - half), s;
    s.m = a.m > b.m ? a.m : b.m;
    const float fa = 1.0f / (float)(1 << (s.m - a.m)), fb = 1.0f / (float)(1 << (s.m - b.m));
    s.l = a.l * fa + b.l * fb;
    for (int d = 0; d < LDO; d++) s.o[d] = a.o[d] * fa + b.o[d] * fb;
    return s;
}

static const float sink_of_all = 0.5f;

static void wanted(const fake *f, int tile, int i, float *row)
{
    static sum leaf[600];
    int n = 0;
    if (f->sinks) {
        leaf[n] = (sum){.m = 0};
        leaf[n].l = ek_exp_split(sink_of_all, &leaf[n].m), n++;
    }
    for (int64_t seg = 0; seg < 512; seg++)
        if (has_visible(f, tile, i, seg)) leaf[n++] = leaf_of(f, tile, i, seg);
    memset(row, 0, sizeof *row * LDO);
    if (!n) return;
    const sum s = halve(leaf, n);
    for (int d = 0; d < LDO; d++) row[d] = (s.o[d] + 0.0f) / s.l;
}

/* ------------------------------------------------------------------ the source */

static void fake_tile(const void *self, ek_attn_tile *t)
{
    const fake *f = self;
    t->keys = t->number / 3;
    t->n_q = f->n_q[t->number];
    memcpy(t->lo, f->lo[t->number], sizeof t->lo);
    memcpy(t->end, f->end[t->number], sizeof t->end);
}

/* The space remembers whose queries it has: a leaf of another tile would show. */
static void fake_queries(const void *self, const ek_attn_tile *t, ek_attn_space *space)
{
    (void)self;
    space->q[0] = (float)t->number;
    *(int64_t *)space->own = t->number;
}

static unsigned fake_leaf(const void *self, const ek_attn_tile *t, int64_t seg, ek_attn_when when, ek_attn_space *space,
                          ek_attn_node *out)
{
    const fake *f = self;
    (void)when;
    assert_true(space->q[0] == (float)t->number && *(int64_t *)space->own == t->number);
    unsigned live = 0;
    for (int i = 0; i < t->n_q; i++) {
        if (!has_visible(f, (int)t->number, i, seg)) continue;
        const sum s = leaf_of(f, (int)t->number, i, seg);
        live |= 1u << i;
        out->m[i] = s.m, out->l[i] = s.l;
        memcpy(out->o + i * LDO, s.o, sizeof s.o);
    }
    return live;
}

static float fake_sink(const void *self, const ek_attn_tile *t, int i)
{
    (void)self, (void)t, (void)i;
    return sink_of_all;
}

static void fake_result(const void *self, const ek_attn_tile *t, int i, float *row)
{
    fake *f = (fake *)self;
    memcpy(f->got[t->number][i], row, sizeof f->got[0][0]);
    f->results[t->number][i]++;
}

/* ------------------------------------------------------------------ workers that take tasks in any order */

typedef struct order {
    uint64_t seed;
    int n_workers;
    int kind; /* 0: stretches in order, one per worker; 1: backwards; else: any task on any worker */
} order;

static void run_in_order(void *self, ek_attn_task_fn *task, void *arg, int64_t n)
{
    order *o = self;
    int64_t *at = malloc(sizeof *at * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) at[i] = o->kind == 1 ? n - 1 - i : i;
    for (int64_t i = n - 1; i > 0 && o->kind > 1; i--) {
        const int64_t j = (int64_t)(ek_mix64(o->seed++) % (uint64_t)(i + 1)), was = at[i];
        at[i] = at[j], at[j] = was;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t worker = o->kind > 1 ? (int64_t)(ek_mix64(o->seed++) % (uint64_t)o->n_workers)
                                           : i * o->n_workers / n;
        task(arg, at[i], (int)worker);
    }
    free(at);
}

static void combine(float *b, const float *a, float fb, float fa, int n)
{
    for (int i = 0; i < n; i++) b[i] = a[i] * fa + b[i] * fb;
}

static void run_fake(fake *f, int kind)
{
    const ek_attn_source s = {.self = f,
                              .n_tiles = f->n_tiles,
                              .group = EK_ATTN_GROUP,
                              .masked = f->masked,
                              .sinks = f->sinks,
                              .ldo = LDO,
                              .own_bytes = sizeof(int64_t),
                              .combine = combine,
                              .tile = fake_tile,
                              .queries = fake_queries,
                              .segment = fake_leaf,
                              .sink = fake_sink,
                              .result = fake_result};
    order o = {f->seed, f->n_workers, kind};
    ek_attn_cut cut;
    const size_t bytes = ek_attn_cut_work(&cut, &s, f->n_workers);
    if (!f->masked) assert_true(bytes <= ek_attn_schedule_bytes(&s, s.n_tiles, cut.max_leaves, f->n_workers));
    void *memory = check_alloc(bytes);
    memset(memory, 0xff, bytes);
    memset(f->results, 0, sizeof f->results);
    ek_attn_schedule(&s, &cut, &(ek_attn_workers){&o, f->n_workers, run_in_order}, memory);
    check_free(memory, bytes);
}

static void check_fake(fake *f)
{
    float row[LDO];
    for (int kind = 0; kind < 4; kind++) {
        run_fake(f, kind);
        for (int t = 0; t < f->n_tiles; t++)
            for (int i = 0; i < f->n_q[t]; i++) {
                wanted(f, t, i, row);
                assert_int_equal(f->results[t][i], 1);
                check_bits("scheduler", "scalar", row, f->got[t][i], LDO,
                           "seed %d, order %d, %d workers, tile %d, query %d", (int)f->seed, kind, f->n_workers, t, i);
            }
    }
}

/* ------------------------------------------------------------------ tests */

static int pick(uint64_t *seed, int n)
{
    return (int)(ek_mix64((*seed)++) % (uint64_t)n);
}

/* Few tiles of very different sizes, all cases of what queries of a tile see. */
static void random_work(uint64_t seed, bool masked, bool sinks, fake *f)
{
    uint64_t x = seed * 1000003;
    *f = (fake){.seed = seed, .masked = masked, .sinks = sinks};
    f->n_workers = 1 + pick(&x, MAX_WORKERS);
    f->n_tiles = 1 + pick(&x, pick(&x, 3) ? 6 : MAX_TILES);
    for (int t = 0; t < f->n_tiles; t++) {
        f->n_q[t] = 1 + pick(&x, EK_TILE);
        const int depth = 1 + pick(&x, pick(&x, 2) ? 600 : 120000), same = pick(&x, 3), lo = pick(&x, depth);
        for (int i = 0; i < f->n_q[t]; i++) {
            f->lo[t][i] = same == 2 ? pick(&x, depth) : pick(&x, 2) ? 0 : lo;
            f->end[t][i] = same ? depth : pick(&x, depth + 1);
            if (same == 1) f->lo[t][i] = lo;
        }
    }
}

static void any_work(void **state)
{
    (void)state;
    static fake f;
    for (int seed = 1; seed <= 150; seed++) {
        random_work((uint64_t)seed, false, seed % 3 == 0, &f);
        check_fake(&f);
    }
}

static void any_masks(void **state)
{
    (void)state;
    static fake f;
    for (int seed = 1; seed <= 80; seed++) {
        random_work((uint64_t)seed, true, seed % 3 == 0, &f);
        check_fake(&f);
    }
}

/* One deep tile, each number of leaves: spans begin and end everywhere. */
static void one_tile(void **state)
{
    (void)state;
    static fake f;
    for (int leaves = 1; leaves <= 130; leaves++) {
        f = (fake){.seed = (uint64_t)leaves, .n_tiles = 1, .n_workers = 1 + leaves % MAX_WORKERS, .sinks = leaves % 2};
        f.n_q[0] = 3;
        for (int i = 0; i < 3; i++) f.end[0][i] = leaves * EK_SEGMENT - i * 300; /* fewer leaves for some */
        check_fake(&f);
    }
}

/* Far more queries than workers: nothing is split, and all are there once. */
static void many_tiles(void **state)
{
    (void)state;
    static fake f = {.seed = 9, .n_tiles = MAX_TILES, .n_workers = 2};
    for (int t = 0; t < MAX_TILES; t++) {
        f.n_q[t] = EK_TILE;
        for (int i = 0; i < EK_TILE; i++) f.end[t][i] = 2000 + t * 8 + i;
    }
    check_fake(&f);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(any_work), CHECK_TEST(any_masks), CHECK_TEST(one_tile),
                                              CHECK_TEST(many_tiles)};
    return CHECK_RUN(argc, argv, tests);
}
