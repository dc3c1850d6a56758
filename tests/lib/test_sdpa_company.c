/* A row of attention has the same bits in any company: threads, pools, instruction sets, chunks of queries, heads,
 * views, and the engine's pages. */
/* tier: all */
#include <math.h>

#include "attend.h"
#include "base/machine/cpu.h"
#include "lib/lib.h"
#include "ops/attn/attn.h"

/* ------------------------------------------------------------------ one call in parts */

static void same_by_threads(const attend_scene *s, const ek_sdpa_options *o)
{
    for (int threads = 2; threads <= 9; threads += 3) {
        MUST(ek_set_threads(threads));
        attend_same(&s->y, s, o, "%d threads", threads);
    }
}

static void same_by_isas(const attend_scene *s, const ek_sdpa_options *o)
{
    const unsigned cpu = lib_cpu();
    const char *const *all = ek_cpu_isas();
    for (const char *const *isa = all; *isa; isa++) {
        unsigned flags;
        if (ek_cpu_mask(*isa, &flags) != EK_OK) continue;
        if (isa == all && s->k.dim[2] > 2000 && !ref_all) continue; /* the scalar definition is slow */
        lib_force_cpu(flags);
        attend_same(&s->y, s, o, "%s", *isa);
        lib_force_cpu(cpu);
    }
}

/* Chunks of queries with the keys up to their end. */
static void same_by_chunks(const attend_scene *s, const ek_sdpa_options *o)
{
    const int64_t rows = s->q.dim[2], keys = s->k.dim[2];
    for (int64_t from = 0, to; from < rows; from = to) {
        to = from + 1 + from % 6 < rows ? from + 1 + from % 6 : rows;
        const attend_scene chunk = attend_keys(attend_rows(*s, from, to), 0, keys - rows + to);
        attend_same(&chunk.y, &chunk, o, "rows %lld to %lld of %lld", (long long)from, (long long)to, (long long)rows);
    }
}

static void same_by_heads(const attend_scene *s, const ek_sdpa_options *o)
{
    for (int64_t h = 0; h < s->q.dim[1]; h++) {
        const attend_scene head = attend_heads(*s, h, h + 1);
        attend_same(&head.y, &head, o, "query head %lld alone", (long long)h);
    }
}

/* Keys element by element apart, values backwards. */
static void same_by_views(const attend_scene *s, const ek_sdpa_options *o)
{
    const int64_t *n = s->k.dim;
    attend_scene turned = *s;
    turned.k = ek_view_swap(ref_new(s->k.type, 4, (int)n[0], (int)n[1], (int)n[3], (int)n[2]), 2, 3);
    turned.v = ek_view_reverse(ref_like(&s->v, s->v.type), 2);
    MUST(ek_copy(turned.k, s->k));
    MUST(ek_copy(turned.v, s->v));
    attend_same(&s->y, &turned, o, "turned keys and values");
}

static void test_company(void **state)
{
    (void)state;
    static const attend_sizes sizes[] = {{1, 4, 2, 40, 700, 64},
                                         {1, 8, 1, 3, 2100, 256},
                                         {1, 4, 4, 1, 5000, 128},
                                         {1, 2, 1, 17, 300, 512},
                                         {1, 6, 2, 9, 270, 72}};
    for (int c = 0; c < 5; c++) EACH_FORM(form)
    for (int window = 0; window <= 100; window += 100) {
        const attend_scene s = attend_f32(form, sizes[c]);
        const ek_sdpa_options o = {.causal = true, .window = window};
        MUST(ek_set_threads(1));
        attend_run(&s, &o);
        same_by_threads(&s, &o);
        MUST(ek_set_threads(2));
        same_by_isas(&s, &o);
        same_by_chunks(&s, &o);
        same_by_heads(&s, &o);
        same_by_views(&s, &o);
        ref_free_all();
    }
    MUST(ek_set_threads(0));
}

/* ------------------------------------------------------------------ the cut of the tree into branches */

static const float sinks[8] = {0.5f, -3, 2, 0, 1, 9, -20, 0.25f};

/* Sinks are the first leaf of a tree that is cut into branches, whatever the number of threads. */
static void test_sinks_and_threads(void **state)
{
    (void)state;
    EACH_FORM(form)
    for (int rows = 1; rows <= 3; rows += 2)
        for (int keys = 255; keys <= 4200; keys = keys * 3 / 2 + 7) {
            const attend_scene s = attend_f32(form, (attend_sizes){1, 8, 1, rows, keys, 64});
            const int64_t start = -keys / 3;
            for (int with = 0; with < 4; with++) {
                const ek_sdpa_options o = {
                    .causal = true, .sinks = with & 1 ? sinks : NULL, .key_start = with & 2 ? &start : NULL};
                MUST(ek_set_threads(1));
                attend_run(&s, &o);
                for (int threads = 2; threads <= 7; threads++) {
                    MUST(ek_set_threads(threads));
                    attend_same(&s.y, &s, &o, "%d threads", threads);
                }
            }
            ref_free_all();
        }
    MUST(ek_set_threads(0));
}

/* A pool of one thread. It takes the tasks from *context on in turn and then the others; below 0: all backwards. */
static void run_from(void *context, ek_pool_task *task, void *arg, int n)
{
    const int first = *(const int *)context;
    for (int i = 0; i < n; i++) task(arg, first < 0 ? n - 1 - i : (first + i) % n);
}

static void same_by_order(const attend_scene *s, const ek_sdpa_options *o)
{
    for (int first = -1; first <= 6; first++)
        for (int threads = 2; threads <= 11; threads += 3) {
            MUST(ek_set_pool(&(ek_pool_hook){&first, threads, run_from}));
            const ek_view y = attend_fresh(s, o);
            MUST(ek_set_pool(NULL));
            ref_same(&s->y, &y, "%d heads, %d keys of %d, %d threads, tasks from %d on", (int)s->q.dim[1],
                     (int)s->k.dim[2], (int)s->k.dim[3], threads, first);
        }
}

/* Which blocks follow each other on one worker, so where its branches begin and end, does not matter to the tree. */
static void test_orders(void **state)
{
    (void)state;
    EACH_FORM(form)
    for (int keys = 700; keys <= 9000; keys = keys * 2 + 91) {
        const struct {
            attend_sizes sizes;
            ek_sdpa_options o;
        } cases[] = {{{1, 4, 1, 1, keys, 40}, {.causal = true}},
                     {{1, 8, 1, 1, keys, 256}, {.causal = true, .window = keys - 100}},
                     {{1, 4, 1, 5, keys, 40}, {.causal = true, .sinks = sinks}}};
        for (int c = 0; c < 3; c++) {
            const attend_scene s = attend_f32(form, cases[c].sizes);
            MUST(ek_set_threads(1));
            attend_run(&s, &cases[c].o);
            same_by_order(&s, &cases[c].o);
            ref_free_all();
        }
    }
    MUST(ek_set_threads(0));
}

/* ------------------------------------------------------------------ the engine's pages */

/* Keys and values of a scene in pages of the engine. */
static ek_kv_view pages_of(ek_attn *a, const attend_scene *s, size_t bytes)
{
    const int heads = (int)s->k.dim[1], keys = (int)s->k.dim[2], dim = (int)s->k.dim[3];
    const int n_pages = keys / EK_PAGE_TOKENS + 1;
    int32_t *page = ref_take(sizeof *page * (size_t)n_pages);
    float *k = ref_take(sizeof *k * (size_t)(heads * dim)), *v = ref_take(sizeof *v * (size_t)(heads * dim));
    for (int p = 0; p < n_pages; p++) page[p] = p;
    const ek_kv_view view = {.base = ref_take(bytes * (size_t)n_pages), .stride = bytes, .page = page};
    for (int j = 0; j < keys; j++) {
        for (int h = 0; h < heads; h++)
            for (int d = 0; d < dim; d++) {
                k[h * dim + d] = (float)ref_at(&s->k, (int64_t[]){0, h, j, d});
                v[h * dim + d] = (float)ref_at(&s->v, (int64_t[]){0, h, j, d});
            }
        ek_attn_store(a, &view, j, k, v);
    }
    return view;
}

/* [1, H, qL, D], as the engine computes it from pages of the scene's numbers. */
static ek_view from_pages(const attend_scene *s, ek_kv_format format, int window)
{
    enum { MAX_ROWS = 8 };
    const int heads = (int)s->q.dim[1], rows = (int)s->q.dim[2], dim = (int)s->q.dim[3], keys = (int)s->k.dim[2];
    const ek_attn_shape shape = {.kind = window ? EK_SLIDING : EK_FULL,
                                 .k_format = format,
                                 .v_format = format,
                                 .n_heads = heads,
                                 .n_kv_heads = (int)s->k.dim[1],
                                 .head_dim = dim};
    ek_attn *a;
    assert_int_equal(ek_attn_plan(&a, ek_cpu_detect(), &shape), EK_OK);
    const ek_kv_view view = pages_of(a, s, ek_kv_block_bytes(format, format, shape.n_kv_heads, dim));
    ek_attn_row row[MAX_ROWS];
    for (int i = 0; i < rows; i++) {
        const int end = keys - rows + i + 1;
        row[i] = (ek_attn_row){0, window ? end - window : 0, end};
    }
    const ek_view q = ref_new(EK_TYPE_F32, 4, 1, rows, heads, dim), o = ref_new(EK_TYPE_F32, 4, 1, rows, heads, dim);
    MUST(ek_copy(ek_view_swap(q, 1, 2), s->q));
    ek_attn_run(a, NULL, &view, row, rows, q.data, heads * dim, o.data, heads * dim,
                ref_take(ek_attn_scratch_bytes(a, rows, keys, 1)));
    ek_attn_free(a);
    return ek_view_swap(o, 1, 2);
}

/* The engine's paged attention gives the same bits. */
static void test_engine(void **state)
{
    (void)state;
    static const struct {
        ek_type type;
        ek_kv_format format;
    } types[] = {{EK_TYPE_F32, EK_KV_F32}, {EK_TYPE_BF16, EK_KV_BF16}};
    for (int dim = 64; dim <= 512; dim = dim == 64 ? 256 : dim * 2)
        for (int t = 0; t < 2; t++)
            for (int window = 0; window <= 300; window += 300) {
                attend_scene s = attend_f32((int)types[t].type, (attend_sizes){1, 8, 2, 5, 700, dim});
                s.q = ref_normals(EK_TYPE_F32, 1, 0.5, 4, 1, 8, 5, dim);
                const ek_sdpa_options o = {.scale = 1, .causal = true, .window = window};
                const ek_view paged = from_pages(&s, types[t].format, window);
                attend_same(&paged, &s, &o, "against the engine's pages");
                ref_free_all();
            }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {REF_TEST(test_company), REF_TEST(test_sinks_and_threads),
                                              REF_TEST(test_orders), REF_TEST(test_engine)};
    return REF_RUN(argc, argv, tests);
}
