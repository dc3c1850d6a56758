/* Weights divided among NUMA nodes: the same bits, panels on pages of their node alone, and the file of packed weights
 * in that order. On a machine that has several nodes also: that the pages lie where they should. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../support/files.h"
#include "../support/nodes.h"
#include "../support/packed.h"
#include "../support/pages.h"
#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/log.h"
#include "model/pass.h"

enum { TOKENS = 40, HUGE_PAGE = 2 << 20, PAGE = 4096 };

static const char *const all[] = {ALL_CPUS "\n", ALL_CPUS "\n", ALL_CPUS "\n"};

static ek_pool *pool_of(int nodes, int threads)
{
    ek_pool *p;
    char *root = make_nodes(all, nodes);
    assert_int_equal(ek_pool_open_nodes(&p, threads, root), EK_OK);
    remove_nodes(root);
    assert_int_equal(ek_pool_nodes(p), nodes);
    return p;
}

static ek_model *make(const ek_config *c, int bits, ek_pool *pool)
{
    ek_model *m;
    ek_model_opts o = {.cpu = ek_cpu_detect(), .pool = pool, .k_format = EK_KV_F16, .v_format = EK_KV_F16};
    if (ek_model_synthetic(&m, c, bits, 7, &o)) fail_msg("%s", ek_err_text());
    return m;
}

static float *logits_of(const ek_model *m)
{
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = (i * 7 + 3) % ek_model_config(m)->vocab_size;
    float *out = ek_alloc(sizeof *out * (size_t)(TOKENS * ek_model_config(m)->vocab_size));
    if (run_tokens(m, ids, TOKENS, (const int[]){25, 1, 2, 0}, out)) fail_msg("%s", ek_err_text());
    return out;
}

static void same_rows(const ek_linear *a, const ek_linear *b)
{
    float *x = ek_alloc(sizeof *x * (size_t)a->k), *y = ek_alloc(sizeof *y * (size_t)a->k);
    for (int r = 0; r < a->n; r++) {
        ek_linear_row(a, r, x), ek_linear_row(b, r, y);
        assert_memory_equal(x, y, sizeof *x * (size_t)a->k);
    }
    free(x), free(y);
}

static void same_bits(void **state)
{
    (void)state;
    static const char *const names[] = {"T1", "T4", "Q1", "Q2", "Q3"};
    static ek_config c;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int bits = 0; bits <= 8; bits += 4) {
            assert_int_equal(ek_config_tiny(&c, names[i]), EK_OK);
            ek_model *plain = make(&c, bits, NULL);
            float *want = logits_of(plain);
            for (int nodes = 2; nodes <= 3; nodes++) {
                ek_pool *pool = pool_of(nodes, nodes + (int)i % 3);
                ek_model *m = make(&c, bits, pool);
                assert_non_null(m->w.layer[0].q.parts);
                same_rows(&plain->w.layer[1].down, &m->w.layer[1].down);
                same_rows(&plain->w.embed, &m->w.embed);
                float *got = logits_of(m);
                assert_memory_equal(want, got, sizeof *got * (size_t)(TOKENS * c.vocab_size));
                free(got);
                ek_model_close(m);
                ek_pool_close(pool);
            }
            free(want);
            ek_model_close(plain);
        }
}

/* E2B's shapes, less of them. */
static const ek_config *shapes(void)
{
    static ek_config c;
    assert_int_equal(ek_config_published(&c, "e2b", 3), EK_OK);
    c.vocab_size = c.vocab_size_per_layer = 8000;
    return &c;
}

static int matrices(const ek_model *m, const ek_linear **out)
{
    const ek_weights *w = &m->w;
    int n = 0;
    out[n++] = &w->embed, out[n++] = &w->per_layer_head, out[n++] = &w->per_layer_tail;
    for (int i = 0; i < m->config.n_layers; i++) {
        const ek_layer_weights *l = &w->layer[i];
        const ek_linear *const of[] = {
            &l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &l->per_layer_gate, &l->per_layer_proj};
        for (size_t k = 0; k < sizeof of / sizeof *of; k++)
            if (of[k]->n) out[n++] = of[k];
    }
    return n;
}

enum { MAX_MATRICES = 40 };

/* Every panel lies in its node's range of the block, at the share that the node's threads read. */
static void ranges(void **state)
{
    (void)state;
    const ek_linear *matrix[MAX_MATRICES];
    ek_pool *pool = pool_of(3, 4); /* two threads on one of the nodes */
    ek_model *m = make(shapes(), 4, pool);
    const ek_weights *w = &m->w;
    assert_int_equal((uintptr_t)w->block % HUGE_PAGE, 0);
    assert_int_equal(w->node_end[2], w->block_bytes);
    size_t used = 0;
    for (int i = 0, n = matrices(m, matrix); i < n; i++) {
        const ek_linear *one = matrix[i];
        const ek_linear_parts *p = one->parts;
        used += one->bytes;
        assert_int_equal(p->first[0], 0);
        assert_int_equal(p->first[3], one->n_panels);
        for (int j = 0; j < 3; j++) {
            size_t from = j ? (w->node_end[j - 1] + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : 0;
            size_t at = (size_t)(p->data[j] - w->block), has = (size_t)(p->first[j + 1] - p->first[j]);
            assert_int_equal(p->first[j], ek_linear_node_panel(one, pool, j));
            int share = one->n_panels * ek_pool_node_first(pool, j) / 4;
            assert_true(p->first[j] <= share && p->first[j] > share - 4); /* whole groups of a gate's outputs */
            assert_true(at >= from && at + has * one->panel_bytes <= w->node_end[j]);
        }
    }
    assert_true(w->block_bytes < used + 2 * HUGE_PAGE + (256 << 10)); /* a huge page per border, and vectors */
    ek_model_close(m);
    ek_pool_close(pool);
}

/* Written by one start and mapped by the next, whatever the nodes. */
static void file(void **state)
{
    (void)state;
    static ek_config c;
    const packed_opts packing = {EK_PACK_BITS, 4, 32, "BF16", false, false, false, false};
    char *dir = temp_dir(), *hf = temp_dir(), *kept = temp_dir();
    assert_int_equal(ek_config_tiny(&c, "Q1"), EK_OK);
    write_packed(dir, hf, &c, &packing);
    float *want = NULL;
    for (int i = 0; i < 6; i++) { /* packed, then mapped, on 1, 2 and 3 nodes */
        int nodes = i / 2 + 1;
        ek_pool *pool = pool_of(nodes, 3);
        ek_model *m;
        ek_model_opts o = {.cpu = ek_cpu_detect(), .pool = pool, .packed_dir = kept};
        if (ek_model_open(&m, dir, &o)) fail_msg("%s", ek_err_text());
        assert_int_equal(m->w.packed != NULL, i % 2);
        float *got = logits_of(m);
        if (!want) want = got;
        assert_memory_equal(want, got, sizeof *got * (size_t)(TOKENS * c.vocab_size));
        if (got != want) free(got);
        ek_model_close(m);
        ek_pool_close(pool);
    }
    free(want);
    remove_dir(dir), remove_dir(hf), remove_dir(kept);
}

static void note_node(void *arg, int task, int worker)
{
    unsigned cpu, node = 0;
    (void)worker;
    syscall(SYS_getcpu, &cpu, &node, NULL);
    ((unsigned *)arg)[task] = node;
}

/* Pages of [at, at + n) on `node` and elsewhere; those that reach beyond it are not counted. */
static void count_pages(const uint8_t *at, size_t n, unsigned node, int64_t count[2])
{
    uintptr_t first = ((uintptr_t)at + PAGE - 1) / PAGE * PAGE, end = ((uintptr_t)at + n) / PAGE * PAGE;
    for (uintptr_t p = first; p < end; p += PAGE) {
        void *page = (void *)p;
        int is = -1;
        if (syscall(SYS_move_pages, 0, 1UL, &page, NULL, &is, 0) == 0 && is >= 0) count[(unsigned)is != node]++;
    }
}

static void pages(void **state)
{
    (void)state;
    const ek_linear *matrix[MAX_MATRICES];
    ek_pool *pool;
    assert_int_equal(ek_pool_open_nodes(&pool, ek_cpu_count(), ""), EK_OK);
    const int nodes = ek_pool_nodes(pool);
    if (nodes == 1) {
        ek_pool_close(pool);
        skip();
    }
    unsigned number[EK_MAX_NODES];
    int end[EK_MAX_NODES];
    for (int j = 0; j < nodes; j++) end[j] = j + 1;
    ek_pool_run_nodes(pool, note_node, number, end, true);
    ek_model *m = make(shapes(), 4, pool);
    int64_t count[EK_MAX_NODES][2] = {{0}};
    for (int i = 0, n = matrices(m, matrix); i < n; i++)
        for (int j = 0; j < nodes; j++) {
            const ek_linear_parts *p = matrix[i]->parts;
            size_t bytes = (size_t)(p->first[j + 1] - p->first[j]) * matrix[i]->panel_bytes;
            count_pages(p->data[j], bytes, number[j], count[j]);
        }
    for (int j = 0; j < nodes; j++)
        printf("node %u: %lld pages of its panels lie there, %lld elsewhere\n", number[j], (long long)count[j][0],
               (long long)count[j][1]);
    for (int j = 0; j < nodes; j++) { /* a node may be short of memory */
        assert_true(count[j][0] > 0);
        assert_true(count[j][1] * 20 <= count[j][0]);
    }
    ek_model_close(m);
    ek_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits), cmocka_unit_test(ranges), cmocka_unit_test(file),
                                       cmocka_unit_test(pages)};
    ek_log_set(EK_LOG_WARN);
    return cmocka_run_group_tests_name("nodes of a model", tests, NULL, NULL);
}
