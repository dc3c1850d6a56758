/* q, k and v of some rows in one launch, against the scalar definition of ops/linear/linear.c. */
#include <stdio.h>
#include <stdlib.h>

#include "../../support/device_pack.h"
#include "cuda/operand_args.h"
#include "linear.h"

enum { MOST = 40, MULTIPROCESSORS = 3 /* few, so that a warp has several chunks, as those of large matrices have */ };

typedef struct head {
    ek_linear w;
    ek_cuda_linear l;
    CUdeviceptr at, y;
    float *want;
} head;

static void open_head(dev *d, head *h, const ek_acts *acts, int rows, int n, int k, int limbs, uint64_t seed)
{
    ek_linear_ops ops;
    shape s = {n, k, 4, 64, 64, limbs, EK_BF16, true};
    ek_linear_init(&ops, 0);
    open_weights(&h->w, &s, seed);
    must(ek_cuda_linear_plan(&h->l, &h->w));
    uint8_t *packed = calloc(1, h->l.bytes);
    device_pack(&h->l, &h->w, packed, 0, h->l.n_panels);
    h->at = up(d, packed, h->l.bytes);
    h->want = malloc((size_t)rows * (size_t)n * sizeof(float));
    ek_acts both = *acts; /* of both numbers of limbs */
    ek_linear_forward(&ops, d->pool, &h->w, &both, h->want, n);
    free(packed);
}

/* oct: of narrow tiles, 0: what the plan says. */
static void compare(dev *d, int n_q, int n_k, int k, bool v, bool odd, const int *counts, int oct, int q_limbs)
{
    const ek_cuda_chip chip = ek_cuda_chip_like(ek_cuda_chip_of(d->c)->features, MULTIPROCESSORS);
    float *x = make_rows(MOST, k, odd);
    void *mem = aligned_alloc(64, ek_acts_bytes(MOST, k));
    ek_acts acts;
    ek_acts_bind(&acts, mem, x, k, MOST, k);
    head h[3];
    for (int i = 0; i < 3; i++) open_head(d, &h[i], &acts, MOST, i ? n_k : n_q, k, i ? 2 : q_limbs, (uint64_t)i * 999);
    CUdeviceptr dx = up(d, x, (size_t)MOST * (size_t)k * sizeof(float));
    ek_cuda_acts in;
    in.q = 0;
    const size_t row = ek_cuda_acts_plan(&in, k, h[0].l.a_group);
    in.q = up(d, NULL, row * MOST);
    device_quantize(d, &in, dx, MOST);
    for (; *counts; counts++) {
        const int rows = *counts;
        ek_cuda_heads p;
        if (oct) p = ek_cuda_mid_heads_plan_at(&h[0].l, &h[1].l, v, rows, oct);
        else if (!ek_cuda_heads_plan(&p, &h[0].l, &h[1].l, v ? &h[2].l : NULL, rows, &chip))
            must(ek_fail(EK_EINTERNAL, "no plan of q, k and v"));
        for (int i = 0; i < 3; i++) h[i].y = up(d, NULL, (size_t)rows * (size_t)h[i].l.n * sizeof(float));
        ek_cuda_warp_heads_args a = {.v_codes = h[2].at,
                                     .v_scales = h[2].at + h[2].l.code_bytes,
                                     .v = h[2].y,
                                     .q_blocks = p.q_blocks,
                                     .k_blocks = p.k_blocks};
        ek_cuda_linear_args *const part[] = {&a.q, &a.k};
        const ek_cuda_product *const plan[] = {&p.q, &p.k};
        for (int i = 0; i < 2; i++) {
            *part[i] = (ek_cuda_linear_args){
                .x = in, .y = h[i].y, .ldy = h[i].l.n, .rows = rows, .share = plan[i]->share, .slots = plan[i]->slots};
            ek_cuda_linear_args_of(part[i], &h[i].l, h[i].at);
        }
        const ek_cuda_kernel kernel = find(d, p.q.name, p.q.grid.shared);
        launch(d, &kernel, p.q.grid, &a);
        for (int i = 0; i < (v ? 3 : 2); i++) {
            const size_t bytes = (size_t)rows * (size_t)h[i].l.n * sizeof(float);
            same(d, h[i].want, down(d, h[i].y, bytes), bytes, odd, "%c, %d and %d x %d, %d rows by %s", "qkv"[i], n_q,
                 n_k, k, rows, p.q.name);
        }
        for (int i = 0; i < 3; i++) drop(d, h[i].y);
    }
    for (int i = 0; i < 3; i++) drop(d, h[i].at), free(h[i].want), free(h[i].w.data);
    drop(d, dx), drop(d, in.q);
    free(mem), free(x);
}

static CUdeviceptr image_of(dev *d, const head *h, const ek_cuda_product *p, const ek_cuda_acts *in, int rows)
{
    ek_cuda_arrange_args a = {.x = *in, .operand = up(d, NULL, p->operand), .rows = rows};
    const ek_cuda_kernel kernel = find(d, ek_cuda_arrange_name(&h->l), 0);
    launch(d, &kernel, p->arrange, &a);
    return a.operand;
}

/* Many rows by wgmma; without q, or without v. times: on the emulated device other blocks are fast at each. */
static void compare_wide(dev *d, int rows, int n_q, int n_k, int k, bool with_q, bool with_v, const ek_cuda_chip *chip,
                         int times)
{
    enum { Q, K, V };
    float *x = make_rows(rows, k, false);
    void *mem = aligned_alloc(64, ek_acts_bytes(rows, k));
    ek_acts acts;
    ek_acts_bind(&acts, mem, x, k, rows, k);
    head h[3];
    for (int i = 0; i < 3; i++) open_head(d, &h[i], &acts, rows, i ? n_k : n_q, k, i ? 2 : 1, (uint64_t)i * 999);
    CUdeviceptr dx = up(d, x, (size_t)rows * (size_t)k * sizeof(float));
    ek_cuda_acts in;
    in.q = 0;
    const size_t row = ek_cuda_acts_plan(&in, k, h[Q].l.a_group);
    in.q = up(d, NULL, row * (size_t)rows);
    device_quantize(d, &in, dx, rows);
    ek_cuda_heads p;
    if (!ek_cuda_wide_heads_plan(&p, with_q ? &h[Q].l : NULL, &h[K].l, with_v ? &h[V].l : NULL, rows, chip))
        must(ek_fail(EK_EINTERNAL, "no plan of q, k and v of many rows"));
    const CUdeviceptr one = image_of(d, &h[Q], with_q ? &p.q : &p.k, &in, rows),
                      two = image_of(d, &h[K], &p.k, &in, rows), stack = up(d, NULL, p.q.stack);
    ek_cuda_wide_heads_args a = {0};
    ek_cuda_linear_args *const part[] = {&a.q, &a.k, &a.v};
    for (int i = 0; i < 3; i++) {
        h[i].y = up(d, NULL, (size_t)rows * (size_t)h[i].l.n * sizeof(float));
        if (i == Q ? !with_q : i == V && !with_v) continue;
        *part[i] = (ek_cuda_linear_args){.x = in,
                                         .y = h[i].y,
                                         .ldy = h[i].l.n,
                                         .rows = rows,
                                         .stack = stack,
                                         .operand = i == Q ? one : two,
                                         .levels = i == Q ? p.q.levels : p.k.levels};
        ek_cuda_linear_args_of(part[i], &h[i].l, h[i].at);
    }
    const ek_cuda_kernel kernel = find(d, p.q.name, p.q.grid.shared);
    while (times--) {
        launch(d, &kernel, p.q.grid, &a);
        for (int i = 0; i < 3; i++) {
            const size_t bytes = (size_t)rows * (size_t)h[i].l.n * sizeof(float);
            if (part[i]->rows)
                same(d, h[i].want, down(d, h[i].y, bytes), bytes, false, "%c, %d and %d x %d, %d rows by %s", "qkv"[i],
                     n_q, n_k, k, rows, p.q.name);
        }
    }
    for (int i = 0; i < 3; i++) drop(d, h[i].y), drop(d, h[i].at), free(h[i].want), free(h[i].w.data);
    drop(d, dx), drop(d, in.q), drop(d, one), drop(d, two), drop(d, stack);
    free(mem), free(x);
}

void test_heads(dev *d)
{
    const int features = ek_cuda_chip_of(d->c)->features;
    const ek_cuda_chip few_blocks = ek_cuda_chip_like(features, MULTIPROCESSORS),
                       more_blocks = ek_cuda_chip_like(features, MULTIPROCESSORS + 2);
    static const int k[] = {256, 320, 576, 1536, 1664, 2816, 5376};
    static const int few[] = {1, 2, 3, 4, 5, 6, 7, 8, 0}, some[] = {9, 17, 40, 0};
    for (int i = 0; i < cases(d, 1, 3, 7); i++) compare(d, 160 + 16 * (i % 2), 96, k[i], i % 3, i % 2, few, 0, 1);
    gguf = "q4_0";
    for (int i = 0; i < cases(d, 1, 3, 7); i++) compare(d, 160 + 16 * (i % 2), 96, k[i], i % 3, i % 2, few, 0, 1);
    gguf = "q8_0";
    for (int i = 0; i < cases(d, 1, 3, 7); i++) compare(d, 160 + 16 * (i % 2), 96, k[i], i % 3, i % 2, few, 0, 2);
    for (int type = 0; type < 2; type++) {
        gguf = type ? "q4_0" : NULL;
        for (int i = 0; i < cases(d, 1, 3, 7); i++)
            compare(d, 160 + 16 * (i % 2), 96, k[i], i % 3, i % 2, some, 1 << (i + type) % 3, 1);
        if (!few_blocks.wgmma) continue;
        /* more tiles than blocks, and fewer; n that ends within a tile */
        for (int i = 0; i < cases(d, 1, 2, 6); i++)
            compare_wide(d, i % 2 ? 65 : 200, 272, 144, k[1 + i] / 64 * 64, i % 3 != 1, i % 3 != 2, &few_blocks, 1);
        /* nodes in scratch memory, of blocks that are at a matrix of one limb and at one of two at the same time */
        compare_wide(d, 200, 272, 144, 2816, true, false, &more_blocks, 6);
    }
    gguf = NULL;
    if (!d->quick && few_blocks.wgmma) compare_wide(d, 1100, 2048, 1024, 2816, true, true, ek_cuda_chip_of(d->c), 1);
}
