/* Products of two matrices with their gate, as a model's MLP has them: the quantised rows byte by byte against the
 * scalar definitions of ops/linear/linear.c and ops/math.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/device_pack.h"
#include "cuda/model_args.h"
#include "ops/math.h"
#include "linear.h"

static CUdeviceptr pack(dev *d, const ek_cuda_linear *l, const ek_linear *w)
{
    uint8_t *packed = calloc(1, l->bytes);
    device_pack(l, w, packed, 0, l->n_panels);
    CUdeviceptr at = up(d, packed, l->bytes);
    free(packed);
    return at;
}

/* u: 0, or what the gate multiplies with in place of the second matrix */
static void compare(dev *d, const ek_cuda_linear *l, const CUdeviceptr weights[2], CUdeviceptr u,
                    const ek_cuda_acts *in, const ek_acts *want, const ek_cuda_product *plan, int rows)
{
    char name[120];
    ek_cuda_acts to;
    const size_t bytes = ek_cuda_acts_plan(&to, l->n, l->a_group) * (size_t)rows;
    to.q = up(d, NULL, bytes);
    ek_cuda_warp_args a = {.a = {.x = *in, .rows = rows, .share = plan->share, .slots = plan->slots},
                           .codes2 = weights[1],
                           .scales2 = u ? 0 : weights[1] + l->code_bytes,
                           .u = u,
                           .ldu = l->n,
                           .to = to};
    ek_cuda_linear_args_of(&a.a, l, weights[0]);
    ek_cuda_kernel kernel = find(d, plan->name, plan->grid.shared);
    launch(d, &kernel, plan->grid, &a);
    snprintf(name, sizeof name, "gate %d x %d, %d rows by %s", l->n, l->k, rows, plan->name);
    compare_rows(d, want, &to, rows, name);
    drop(d, to.q);
}

/* Byte i of a unit in its column of an image: of groups of 64 word i / 4 lies in piece i / 4 % 4, of groups of 32 the
 * words of a half in two pieces in turn. */
static int image_at(int i, int a_group, int second, int column)
{
    const int word = i / 4 % (a_group / 4), pieces = a_group / 16, piece = i / a_group * pieces + word % pieces;
    return ((second * 4 + piece) ^ column % 8) * 16 + word / pieces * 4 + i % 4;
}

/* Rows as an image of one limb, as the next product by wgmma reads them; a unit's scales lie behind its columns. */
static void compare_image(dev *d, const ek_acts *want, CUdeviceptr image, size_t bytes, const ek_cuda_linear *next,
                          int rows, const char *name)
{
    uint8_t *mem = down(d, image, bytes);
    const int k = next->k, units = k / 64, pairs = (units + 1) / 2, each = next->a_group == 64 ? 8 : 4;
    for (int r = 0; r < rows; r++) {
        uint8_t *w = calloc(1, (size_t)k + (size_t)units * 8), *g = calloc(1, (size_t)k + (size_t)units * 8);
        memcpy(w, ek_acts_record(want, r), (size_t)k);
        for (int u = 0; u < units; u++) {
            const uint8_t *of = mem + ((size_t)(r / 64) * (size_t)pairs + (size_t)u / 2) * EK_CUDA_WIDE_PAIR;
            const uint8_t *scales = of + EK_CUDA_WIDE_COLUMNS * 128 + u % 2 * 512 + r % 64 * each;
            const ek_act_group *one = ek_acts_groups(want, r, 1) + u * (64 / next->a_group);
            for (int i = 0; i < 64; i++) g[u * 64 + i] = of[r % 64 * 128 + image_at(i, next->a_group, u % 2, r)];
            memcpy(w + k + u * 8, &one->sx, 4);
            memcpy(w + k + u * 8 + 4, next->a_group == 64 ? &one->sum : &one[1].sx, 4);
            memcpy(g + k + u * 8, scales, 4);
            memcpy(g + k + u * 8 + 4, next->a_group == 64 ? scales + 4 : scales + 256, 4);
        }
        same(d, w, g, (size_t)k + (size_t)units * 8, false, "row %d of the image of %s", r, name);
        free(w);
    }
    free(mem);
}

static void compare_wide(dev *d, const ek_cuda_linear *l, const ek_cuda_linear *next, const CUdeviceptr weights[2],
                         const ek_cuda_acts *in, const ek_acts *want, int rows)
{
    char name[120];
    ek_cuda_product p;
    if (!ek_cuda_wide_gate_plan(&p, l, next, rows, 0, ek_cuda_chip_of(d->c))) must(ek_fail(EK_EINTERNAL, "gate"));
    const size_t bytes = ek_cuda_wide_operand(next, rows, 0, ek_cuda_chip_of(d->c));
    ek_cuda_products_args a = {.a = {.x = *in,
                                     .rows = rows,
                                     .levels = p.levels,
                                     .stack = up(d, NULL, p.stack),
                                     .operand = up(d, NULL, p.operand)},
                               .codes2 = weights[1],
                               .scales2 = weights[1] + l->code_bytes,
                               .y2 = up(d, NULL, bytes)};
    ek_cuda_linear_args_of(&a.a, l, weights[0]);
    ek_cuda_arrange_args r = {.x = *in, .operand = a.a.operand, .rows = rows};
    ek_cuda_kernel arrange = find(d, ek_cuda_arrange_name(l), 0), kernel = find(d, p.name, p.grid.shared);
    launch(d, &arrange, p.arrange, &r);
    launch(d, &kernel, p.grid, &a);
    snprintf(name, sizeof name, "gate %d x %d, %d rows by %s", l->n, l->k, rows, p.name);
    compare_image(d, want, a.y2, bytes, next, rows, name);
    drop(d, a.a.stack), drop(d, a.a.operand), drop(d, a.y2);
}

static void test_shape(dev *d, shape s, const int *rows, int max, bool odd)
{
    const ek_cuda_chip *chip = ek_cuda_chip_of(d->c);
    ek_linear w[2];
    ek_cuda_linear l;
    CUdeviceptr weights[2];
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    float *x = make_rows(max, s.k, odd), *y[2];
    void *mem = aligned_alloc(64, ek_acts_bytes(max, s.k)), *mem2 = aligned_alloc(64, ek_acts_bytes(max, s.n));
    ek_acts acts, gated;
    ek_acts_bind(&acts, mem, x, s.k, max, s.k);
    for (int i = 0; i < 2; i++) {
        open_weights(&w[i], &s, (uint64_t)i * 12345);
        must(ek_cuda_linear_plan(&l, &w[i]));
        weights[i] = pack(d, &l, &w[i]);
        y[i] = malloc((size_t)max * (size_t)s.n * sizeof(float));
        quantize_both(d, &acts, &w[i]);
        ek_linear_forward(&ops, d->pool, &w[i], &acts, y[i], s.n);
    }
    for (int i = 0; i < max * s.n; i++) y[0][i] = ek_gelu_tanh(y[0][i]) * y[1][i];
    /* a product with them quantises them */
    ek_linear next;
    shape of_next = {16, s.n, 4, 64, 64, 1, EK_BF16, true}; /* or GGUF's */
    open_weights(&next, &of_next, 0);
    ek_acts_bind(&gated, mem2, y[0], s.n, max, s.n);
    quantize_both(d, &gated, &next);
    ek_linear_forward(&ops, d->pool, &next, &gated, y[1], 16);
    ek_cuda_linear next_l;
    must(ek_cuda_linear_plan(&next_l, &next));
    CUdeviceptr dx = up(d, x, (size_t)max * (size_t)s.k * sizeof(float));
    ek_cuda_acts in;
    const size_t row = ek_cuda_acts_plan(&in, s.k, s.a_group);
    in.q = up(d, NULL, row * (size_t)max);
    device_quantize(d, &in, dx, max);
    for (; *rows; rows++) {
        const ek_cuda_product leaf = ek_cuda_warp_plan(&l, *rows, 0, EK_CUDA_GATE_MATRIX, chip);
        compare(d, &l, weights, 0, &in, &gated, &leaf, *rows);
        for (int oct = 1; ek_cuda_mid_fits(&l) && oct <= EK_CUDA_MID_MAX_OCT; oct *= 2) {
            const ek_cuda_product mid = ek_cuda_mid_plan_at(&l, *rows, oct, l.units, EK_CUDA_GATE_MATRIX);
            compare(d, &l, weights, 0, &in, &gated, &mid, *rows);
        }
        if (chip->wgmma && (!gguf || !strcmp(gguf, "q4_0"))) compare_wide(d, &l, &next_l, weights, &in, &gated, *rows);
    }
    drop(d, dx), drop(d, in.q), drop(d, weights[0]), drop(d, weights[1]);
    free(mem), free(mem2), free(x), free(y[0]), free(y[1]), free(w[0].data), free(w[1].data), free(next.data);
}

/* One matrix of two limbs, and rows u in place of the second: a per-layer gate. */
static void test_row(dev *d, int n, int k, const int *rows, int max)
{
    shape s = {n, k, 4, 64, 64, 2, EK_BF16, true}, of_next = {16, n, 4, 64, 64, 1, EK_BF16, true};
    ek_linear w, next;
    ek_cuda_linear l;
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    float *x = make_rows(max, k, true), *u = make_rows(max, n, false);
    float *y = malloc((size_t)max * (size_t)n * sizeof(float)), *out = malloc((size_t)max * 16 * sizeof(float));
    void *mem = aligned_alloc(64, ek_acts_bytes(max, k)), *mem2 = aligned_alloc(64, ek_acts_bytes(max, n));
    ek_acts acts, gated;
    ek_acts_bind(&acts, mem, x, k, max, k);
    open_weights(&w, &s, 0), open_weights(&next, &of_next, 0);
    must(ek_cuda_linear_plan(&l, &w));
    const CUdeviceptr weights[2] = {pack(d, &l, &w), 0};
    quantize_both(d, &acts, &w);
    ek_linear_forward(&ops, d->pool, &w, &acts, y, n);
    for (int i = 0; i < max * n; i++) y[i] = ek_gelu_tanh(y[i]) * u[i];
    ek_acts_bind(&gated, mem2, y, n, max, n);
    quantize_both(d, &gated, &next);
    ek_linear_forward(&ops, d->pool, &next, &gated, out, 16);
    const CUdeviceptr dx = up(d, x, (size_t)max * (size_t)k * sizeof(float)),
                      du = up(d, u, (size_t)max * (size_t)n * sizeof(float));
    ek_cuda_acts in;
    in.q = up(d, NULL, ek_cuda_acts_plan(&in, k, s.a_group) * (size_t)max);
    device_quantize(d, &in, dx, max);
    for (; *rows; rows++) {
        const ek_cuda_product p = ek_cuda_warp_plan(&l, *rows, 0, EK_CUDA_GATE_ROW, ek_cuda_chip_of(d->c));
        compare(d, &l, weights, du, &in, &gated, &p, *rows);
    }
    drop(d, dx), drop(d, du), drop(d, in.q), drop(d, weights[0]);
    free(mem), free(mem2), free(x), free(u), free(y), free(out), free(w.data), free(next.data);
}

void test_gate(dev *d)
{
    static const int few[] = {1, 3, 8, 21, 40, 0}, some[] = {9, 16, 17, 64, 100, 0}, four[] = {1, 2, 3, 4, 0};
    static const int k[] = {64, 192, 1024, 1088, 1536, 2560, 5376};
    for (int i = 0; i < cases(d, 2, 5, 7); i++)
        test_shape(d, (shape){64 + 64 * (i % 2), k[i], 4, 64, 64, 1, EK_BF16, true}, few, 40, i % 2);
    /* groups that multiprocessors cannot share evenly: 4 on the 3 of the emulated device, 160 on 132 */
    for (int i = 2; i < cases(d, 3, 5, 7); i++)
        test_shape(d, (shape){256, k[i], 4, 64, 64, 1, EK_BF16, true}, four, 4, i % 2);
    if (!d->quick) test_shape(d, (shape){10240, 2560, 4, 64, 64, 1, EK_BF16, true}, four, 4, true);
    if (!d->quick) test_shape(d, (shape){6144, 1536, 4, 64, 64, 1, EK_BF16, true}, some, 100, false);
    /* up to 4 rows of a group by clusters on 3 multiprocessors; on 132 all of 256 outputs, up to 64 rows of E2B's
     * inputs */
    static const int row_counts[] = {1, 2, 3, 4, 9, 16, 33, 64, 65, 0};
    for (int i = 0; i < cases(d, 2, 6, 7); i++) test_row(d, d->quick || i % 2 ? 64 : 256, k[i], row_counts, 65);
    gguf = "q4_0";
    for (int i = 0; i < cases(d, 1, 4, 7); i++)
        test_shape(d, (shape){.n = 64 + 64 * (i % 2), .k = k[i], .limbs = 1, .scales = EK_F16}, few, 40, i % 2);
    if (!d->quick) test_shape(d, (shape){.n = 6144, .k = 1536, .limbs = 1, .scales = EK_F16}, some, 100, false);
    /* scales and biases of every kind, in as many rows as leave the fewest registers */
    static const char *const types[] = {"q4_1", "q8_0", "q5_1", "iq4_xs", "mxfp4", "q4_k", "q5_k", "q6_k"};
    static const int eight[] = {2, 4, 5, 8, 11, 0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int limbs = 1; limbs <= 2; limbs++) {
            if (d->few && (i + (size_t)limbs) % 4) continue;
            gguf = types[i];
            test_shape(d, (shape){.n = 256, .k = d->quick ? 768 : 2816, .limbs = limbs, .scales = EK_F16}, eight, 11,
                       limbs == 2);
        }
    gguf = NULL;
}
