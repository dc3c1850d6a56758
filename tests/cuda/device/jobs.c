/* Products of experts by wgmma: jobs of as many rows as a tile has and of fewer, gathered by an index, against the
 * scalar definition of ops/linear/linear.c; and two with their gate, whose image another reads. */
#include <stdio.h>
#include <stdlib.h>

#include "../../support/device_pack.h"
#include "cuda/tiles.h"
#include "cuda/model_args.h"
#include "linear.h"
#include "ops/math.h"

enum { EXPERTS = 3, JOBS = 7, ROWS = 40 };

typedef struct matrices {
    ek_linear w[EXPERTS];
    ek_cuda_linear l;
    CUdeviceptr at;
} matrices;

typedef struct work {
    ek_cuda_job job[JOBS];
    int32_t index[JOBS * EK_CUDA_WIDE_COLUMNS];
    int pairs;
    CUdeviceptr jobs, n_jobs, indices;
} work;

static void open_matrices(dev *d, matrices *m, shape s, uint64_t seed)
{
    uint8_t *packed = NULL;
    for (int e = 0; e < EXPERTS; e++) {
        open_weights(&m->w[e], &s, seed + (uint64_t)e);
        must(ek_cuda_linear_plan(&m->l, &m->w[e]));
        if (!packed) packed = calloc(EXPERTS, m->l.bytes);
        device_pack(&m->l, &m->w[e], packed + (size_t)e * m->l.bytes, 0, m->l.n_panels);
    }
    m->at = up(d, packed, EXPERTS * m->l.bytes);
    free(packed);
}

static void close_matrices(dev *d, matrices *m)
{
    for (int e = 0; e < EXPERTS; e++) free(m->w[e].data);
    drop(d, m->at);
}

static void open_work(dev *d, work *w, int tile)
{
    const int n[JOBS] = {tile, tile / 2, tile / 2 + 1, 1, tile - 1, tile / 2 - 1, tile / 4};
    *w = (work){.pairs = 0};
    for (int j = 0; j < JOBS; j++) {
        w->job[j] = (ek_cuda_job){.expert = j * 2 % EXPERTS, .first = w->pairs, .n = n[j]};
        for (int i = 0; i < n[j]; i++, w->pairs++) w->index[w->pairs] = w->pairs * 7 % ROWS;
    }
    w->jobs = up(d, w->job, sizeof w->job), w->n_jobs = up(d, &(int32_t){JOBS}, sizeof(int32_t));
    w->indices = up(d, w->index, sizeof w->index);
}

/* want[pair] = its expert's product of row index[pair], or of row `pair`. */
static void define(dev *d, const matrices *m, const work *w, ek_acts *acts, bool gathered, float *want)
{
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    quantize_both(d, acts, &m->w[0]);
    for (int j = 0; j < JOBS; j++)
        for (int32_t i = w->job[j].first; i < w->job[j].first + w->job[j].n; i++) {
            ek_acts one = ek_acts_pick(acts, gathered ? &w->index[i] : &i, 1);
            ek_linear_forward(&ops, d->pool, &m->w[w->job[j].expert], &one, want + i * m->l.n, m->l.n);
        }
}

/* The image is there, or made of the rows at `in`. */
static void check_product(dev *d, const matrices *m, const work *w, const ek_cuda_acts *in, CUdeviceptr image,
                          const float *want, const char *name)
{
    const ek_cuda_product p = ek_cuda_wide_plan(&m->l, EK_CUDA_WIDE_COLUMNS / m->l.limbs, JOBS, 1,
                                                ek_cuda_chip_of(d->c));
    const size_t bytes = sizeof(float) * (size_t)w->pairs * (size_t)m->l.n;
    ek_cuda_products_args a = {.a = {.y = up(d, NULL, bytes),
                                     .ldy = m->l.n,
                                     .levels = p.levels,
                                     .stack = up(d, NULL, p.stack),
                                     .operand = image ? image : up(d, NULL, p.operand)},
                               .jobs = w->jobs,
                               .n_jobs = w->n_jobs,
                               .index = in ? w->indices : 0,
                               .expert_bytes = (int64_t)m->l.bytes};
    ek_cuda_linear_args_of(&a.a, &m->l, m->at);
    if (in) {
        ek_cuda_arrange_args r = {
            .x = *in, .operand = a.a.operand, .jobs = w->jobs, .n_jobs = w->n_jobs, .index = w->indices};
        const ek_cuda_kernel arrange = find(d, ek_cuda_arrange_name(&m->l), 0);
        a.a.x = *in;
        launch(d, &arrange, p.arrange, &r);
    }
    const ek_cuda_kernel kernel = find(d, p.name, p.grid.shared);
    launch(d, &kernel, p.grid, &a);
    same(d, want, down(d, a.a.y, bytes), bytes, false, "%s, %d x %d by %s", name, m->l.n, m->l.k, p.name);
    drop(d, a.a.y), drop(d, a.a.stack);
    if (!image) drop(d, a.a.operand);
}

/* Gate and up of the same rows, and the down that reads what comes of them. */
static void check_gate(dev *d, const matrices m[3], const work *w, const ek_cuda_acts *in, const float *want)
{
    ek_cuda_product p;
    if (!ek_cuda_wide_gate_plan(&p, &m[0].l, &m[2].l, EK_CUDA_WIDE_COLUMNS, JOBS, ek_cuda_chip_of(d->c)))
        must(ek_fail(EK_EINTERNAL, "gate of experts"));
    ek_cuda_products_args a = {
        .a = {.x = *in, .levels = p.levels, .stack = up(d, NULL, p.stack), .operand = up(d, NULL, p.operand)},
        .codes2 = m[1].at,
        .scales2 = m[1].at + m[1].l.code_bytes,
        .y2 = up(d, NULL, ek_cuda_wide_operand(&m[2].l, EK_CUDA_WIDE_COLUMNS, JOBS, ek_cuda_chip_of(d->c))),
        .jobs = w->jobs,
        .n_jobs = w->n_jobs,
        .index = w->indices,
        .expert_bytes = (int64_t)m[0].l.bytes};
    ek_cuda_linear_args_of(&a.a, &m[0].l, m[0].at);
    ek_cuda_arrange_args r = {
        .x = *in, .operand = a.a.operand, .jobs = w->jobs, .n_jobs = w->n_jobs, .index = w->indices};
    const ek_cuda_kernel arrange = find(d, ek_cuda_arrange_name(&m[0].l), 0), kernel = find(d, p.name, p.grid.shared);
    launch(d, &arrange, p.arrange, &r);
    launch(d, &kernel, p.grid, &a);
    check_product(d, &m[2], w, NULL, a.y2, want, "experts behind their gate");
    drop(d, a.a.stack), drop(d, a.a.operand), drop(d, a.y2);
}

static void test_shape(dev *d, shape s)
{
    const bool gated = s.bits == 4 && s.limbs == 1;
    matrices m[3] = {0};
    work w;
    float *x = make_rows(ROWS, s.k, false), *want;
    void *mem = aligned_alloc(64, ek_acts_bytes(ROWS, s.k));
    ek_acts acts;
    ek_cuda_acts in;
    ek_acts_bind(&acts, mem, x, s.k, ROWS, s.k);
    open_matrices(d, &m[0], s, 11);
    open_work(d, &w, EK_CUDA_WIDE_COLUMNS / m[0].l.limbs);
    want = malloc(sizeof *want * (size_t)w.pairs * (size_t)s.n);
    define(d, &m[0], &w, &acts, true, want);
    CUdeviceptr dx = up(d, x, sizeof *x * ROWS * (size_t)s.k);
    in.q = 0;
    const size_t row = ek_cuda_acts_plan(&in, s.k, m[0].l.a_group);
    in.q = up(d, NULL, row * ROWS);
    device_quantize(d, &in, dx, ROWS);
    check_product(d, &m[0], &w, &in, 0, want, gguf ? gguf : s.bits == 4 ? "experts" : "experts of 8 bits");
    if (gated) {
        shape next = {144, s.n, 4, 64, 64, 1, EK_BF16, true};
        float *y = malloc(sizeof *y * (size_t)w.pairs * 144);
        void *mem2 = aligned_alloc(64, ek_acts_bytes(w.pairs, s.n));
        ek_acts between;
        float *up_want = calloc((size_t)w.pairs * (size_t)s.n, sizeof *up_want);
        open_matrices(d, &m[1], s, 22), open_matrices(d, &m[2], next, 33);
        define(d, &m[1], &w, &acts, true, up_want);
        for (int i = 0; i < w.pairs * s.n; i++) want[i] = ek_gelu_tanh(want[i]) * up_want[i];
        ek_acts_bind(&between, mem2, want, s.n, w.pairs, s.n);
        define(d, &m[2], &w, &between, false, y);
        check_gate(d, m, &w, &in, y);
        close_matrices(d, &m[1]), close_matrices(d, &m[2]);
        free(y), free(mem2), free(up_want);
    }
    close_matrices(d, &m[0]);
    drop(d, dx), drop(d, in.q), drop(d, w.jobs), drop(d, w.n_jobs), drop(d, w.indices);
    free(x), free(mem), free(want);
}

/* The products of experts by narrow tiles, to y, or with the second matrix and their gate to records. */
static void run_mid(dev *d, const matrices m[2], const work *w, int rows, const ek_cuda_acts *in,
                    const ek_cuda_acts *to, CUdeviceptr y, bool known)
{
    const ek_cuda_product p = ek_cuda_mid_plan_jobs(&m[0].l, rows, JOBS + 2,
                                                    to ? EK_CUDA_GATE_MATRIX : EK_CUDA_GATE_NONE);
    ek_cuda_warp_args a = {.a = {.x = *in, .y = y, .ldy = m[0].l.n, .rows = rows},
                           .jobs = w->jobs,
                           .n_jobs = w->n_jobs,
                           .index = w->indices,
                           .expert_bytes = (int64_t)m[0].l.bytes,
                           .known = known,
                           .holds = !known};
    ek_cuda_linear_args_of(&a.a, &m[0].l, m[0].at);
    if (to) a.codes2 = m[1].at, a.scales2 = m[1].at + m[1].l.code_bytes, a.to = *to;
    const ek_cuda_kernel kernel = find(d, p.name, p.grid.shared);
    launch(d, &kernel, p.grid, &a);
}

/* n: whole groups of 64; job_rows: of a job, at most. */
static void test_mid(dev *d, shape s, int job_rows)
{
    matrices m[2] = {0};
    work w;
    float *x = make_rows(ROWS, s.k, false);
    void *mem = aligned_alloc(64, ek_acts_bytes(ROWS, s.k));
    ek_acts acts, gated;
    ek_cuda_acts in = {0}, to = {0};
    ek_acts_bind(&acts, mem, x, s.k, ROWS, s.k);
    open_matrices(d, &m[0], s, 11), open_matrices(d, &m[1], s, 22);
    open_work(d, &w, job_rows);
    const size_t floats = (size_t)w.pairs * (size_t)s.n, bytes = sizeof(float) * floats;
    float *want = malloc(bytes), *up_want = malloc(bytes);
    define(d, &m[0], &w, &acts, true, want), define(d, &m[1], &w, &acts, true, up_want);
    CUdeviceptr dx = up(d, x, sizeof *x * ROWS * (size_t)s.k), y = up(d, NULL, bytes);
    const size_t row = ek_cuda_acts_plan(&in, s.k, m[0].l.a_group);
    in.q = up(d, NULL, row * ROWS);
    device_quantize(d, &in, dx, ROWS);
    for (int known = 0; known < 2; known++) {
        run_mid(d, m, &w, job_rows, &in, NULL, y, known);
        same(d, want, down(d, y, bytes), bytes, false, "experts by narrow tiles, %s%d x %d, jobs of %d",
             gguf ? gguf : "", s.n, s.k, job_rows);
        must(ek_cuda_fill(d->c, y, 0xff, bytes));
    }
    for (size_t i = 0; i < floats; i++) want[i] = ek_gelu_tanh(want[i]) * up_want[i];
    void *mem2 = aligned_alloc(64, ek_acts_bytes(w.pairs, s.n));
    ek_acts_bind(&gated, mem2, want, s.n, w.pairs, s.n);
    quantize_both(d, &gated, &m[0].w[0]);
    const size_t out = ek_cuda_acts_plan(&to, s.n, m[0].l.a_group);
    to.q = up(d, NULL, out * (size_t)w.pairs);
    run_mid(d, m, &w, job_rows, &in, &to, 0, false);
    compare_rows(d, &gated, &to, w.pairs, "experts' gate by narrow tiles");
    close_matrices(d, &m[0]), close_matrices(d, &m[1]);
    drop(d, dx), drop(d, y), drop(d, in.q), drop(d, to.q), drop(d, w.jobs), drop(d, w.n_jobs), drop(d, w.indices);
    free(x), free(mem), free(mem2), free(want), free(up_want);
}

void test_jobs(dev *d)
{
    static const int k[] = {192, 704, 2816};
    if (!ek_cuda_chip_of(d->c)->wgmma) return; /* by tiles, which test_linear has */
    for (int i = 0; i < (d->quick ? 2 : 3); i++)
        for (int bits = 4; bits <= 8; bits += 4)
            for (int limbs = 1; limbs <= 2; limbs++)
                test_shape(d, (shape){192, k[i], bits, 64, 64, limbs, EK_BF16, true});
    gguf = "q4_0";
    for (int limbs = 1; limbs <= 2; limbs++) test_shape(d, (shape){192, 704, 4, 64, 64, limbs, EK_BF16, true});
    for (int type = 0; type < 2; type++) {
        for (int i = 0; i < (d->quick ? 2 : 3); i++)
            for (int rows = 16; rows <= 32; rows += 8)
                test_mid(d, (shape){192, k[i], 4, 64, 64, 1, EK_BF16, true}, rows);
        gguf = NULL;
    }
}
