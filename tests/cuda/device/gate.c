/* Products of two matrices with their gate, as a model's MLP has them: the quantised rows byte by byte against the
 * scalar definitions of ops/linear.c and ops/math.c. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda/model_args.h"
#include "ops/math.h"
#include "product.h"

static CUdeviceptr pack(dev *d, const ek_cuda_linear *l, const ek_linear *w)
{
    uint8_t *packed = calloc(1, l->bytes);
    ek_cuda_linear_pack(l, w, packed, 0, l->n_panels);
    CUdeviceptr at = up(d, packed, l->bytes);
    free(packed);
    return at;
}

static void compare(dev *d, const ek_cuda_linear *l, const CUdeviceptr weights[2], const ek_cuda_acts *in,
                    const ek_acts *want, const ek_cuda_product *plan, int rows)
{
    char name[120];
    ek_cuda_acts to;
    const size_t bytes = ek_cuda_acts_plan(&to, l->n, 64) * (size_t)rows;
    to.q = up(d, NULL, bytes);
    ek_cuda_leaf_args a = {.a = {.x = *in, .rows = rows, .turn = plan->turn, .stages = plan->stages},
                           .codes2 = weights[1],
                           .scales2 = weights[1] + l->code_bytes,
                           .to = to};
    ek_cuda_linear_args_of(&a.a, l, weights[0]);
    ek_cuda_kernel kernel = find(d, plan->name, plan->grid.shared);
    launch(d, &kernel, plan->grid, &a);
    snprintf(name, sizeof name, "gate %d x %d, %d rows by %s", l->n, l->k, rows, plan->name);
    compare_rows(d, want, &to, rows, name);
    drop(d, to.q);
}

static void test_shape(dev *d, shape s, const int *rows, int most, bool odd)
{
    const int multiprocessors = ek_cuda_multiprocessors(d->c);
    ek_linear w[2];
    ek_cuda_linear l;
    CUdeviceptr weights[2];
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    float *x = make_rows(most, s.k, odd), *y[2];
    void *mem = aligned_alloc(64, ek_acts_bytes(most, s.k)), *mem2 = aligned_alloc(64, ek_acts_bytes(most, s.n));
    ek_acts acts, gated;
    ek_acts_bind(&acts, mem, x, s.k, most, s.k);
    for (int i = 0; i < 2; i++) {
        open_weights(&w[i], &s, (uint64_t)i * 12345);
        must(ek_cuda_linear_plan(&l, &w[i]));
        weights[i] = pack(d, &l, &w[i]);
        y[i] = malloc((size_t)most * (size_t)s.n * sizeof(float));
        ek_linear_forward(&ops, d->pool, &w[i], &acts, y[i], s.n);
    }
    for (int i = 0; i < most * s.n; i++) y[0][i] = ek_gelu_tanh(y[0][i]) * y[1][i];
    /* a product with them quantises them */
    ek_linear next;
    shape of_next = {16, s.n, 4, 64, 64, 1, EK_BF16, true};
    open_weights(&next, &of_next, 0);
    ek_acts_bind(&gated, mem2, y[0], s.n, most, s.n);
    ek_linear_forward(&ops, d->pool, &next, &gated, y[1], 16);
    CUdeviceptr dx = up(d, x, (size_t)most * (size_t)s.k * sizeof(float));
    ek_cuda_acts in;
    const size_t row = ek_cuda_acts_plan(&in, s.k, 64);
    in.q = up(d, NULL, row * (size_t)most);
    device_quantize(d, &in, dx, most);
    for (; *rows; rows++) {
        const ek_cuda_product leaf = ek_cuda_leaf_plan(&l, *rows, 0, EK_CUDA_GATE_MATRIX, multiprocessors);
        compare(d, &l, weights, &in, &gated, &leaf, *rows);
        for (int oct = 1; oct <= EK_CUDA_MID_MAX_OCT; oct *= 2) {
            const ek_cuda_product mid = ek_cuda_mid_plan_by(&l, *rows, oct, EK_CUDA_GATE_MATRIX);
            compare(d, &l, weights, &in, &gated, &mid, *rows);
        }
    }
    drop(d, dx), drop(d, in.q), drop(d, weights[0]), drop(d, weights[1]);
    free(mem), free(mem2), free(x), free(y[0]), free(y[1]), free(w[0].data), free(w[1].data), free(next.data);
}

void test_gate(dev *d)
{
    static const int few[] = {1, 3, 8, 21, 40, 0}, some[] = {9, 16, 17, 64, 100, 0};
    static const int k[] = {64, 192, 1024, 1088, 1536, 2560, 5376};
    for (int i = 0; i < (d->quick ? 5 : 7); i++)
        test_shape(d, (shape){64 + 64 * (i % 2), k[i], 4, 64, 64, 1, EK_BF16, true}, few, 40, i % 2);
    if (!d->quick) test_shape(d, (shape){6144, 1536, 4, 64, 64, 1, EK_BF16, true}, some, 100, false);
}
