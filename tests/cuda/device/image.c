/* Rows written straight as products by wgmma read them: byte by byte what ek_quantize or ek_stage and ek_arrange make.
 */
#include <stdlib.h>

#include "cuda/operand_args.h"
#include "product.h"

enum { ROWS = 128 };

typedef struct images {
    CUdeviceptr at[2]; /* of one and of two limbs */
    size_t bytes[2];
} images;

static images images_open(dev *d, int k)
{
    images m;
    for (int i = 0; i < 2; i++) {
        m.bytes[i] = (size_t)(ROWS * (i + 1) / EK_CUDA_WIDE_COLUMNS) * (size_t)((k + 127) / 128) * EK_CUDA_WIDE_PAIR;
        m.at[i] = up(d, NULL, m.bytes[i]);
    }
    return m;
}

/* Of records, by ek_arrange. */
static images arranged(dev *d, const ek_cuda_acts *acts)
{
    images m = images_open(d, acts->k);
    for (int i = 0; i < 2; i++) {
        ek_cuda_kernel kernel = find(d, i ? "ek_arrange_l2" : "ek_arrange_l1", 0);
        ek_cuda_arrange_args a = {.x = *acts, .operand = m.at[i], .rows = ROWS};
        launch(d, &kernel,
               (ek_cuda_grid){.x = (unsigned)(EK_CUDA_WIDE_COLUMNS * (acts->k / 64) * 4 + 255) / 256,
                              .y = ROWS * (unsigned)(i + 1) / EK_CUDA_WIDE_COLUMNS,
                              .threads = 256},
               &a);
    }
    return m;
}

static void compare(dev *d, images want, images got, int k, const char *by)
{
    for (int i = 0; i < 2; i++) {
        uint8_t *bytes = down(d, want.at[i], want.bytes[i]);
        same(d, bytes, down(d, got.at[i], got.bytes[i]), want.bytes[i], false, "%d limbs of %d inputs by %s", i + 1, k,
             by);
        free(bytes);
        drop(d, want.at[i]), drop(d, got.at[i]);
    }
}

static ek_cuda_acts records(dev *d, int k)
{
    ek_cuda_acts acts;
    const size_t row = ek_cuda_acts_plan(&acts, k, 64);
    acts.q = up(d, NULL, row * ROWS);
    return acts;
}

static void test_quantized(dev *d, int k, bool odd)
{
    float *x = make_rows(ROWS, k, odd);
    CUdeviceptr dx = up(d, x, sizeof(float) * (size_t)(ROWS * k));
    const ek_cuda_acts acts = records(d, k);
    device_quantize(d, &acts, dx, ROWS);
    images got = images_open(d, k);
    ek_cuda_quantize_operands_args a = {.to = {got.at[0], got.at[1]}, .x = dx, .ldx = k, .k = k};
    ek_cuda_kernel kernel = find(d, "ek_quantize_operands", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)(k + 2047) / 2048, .y = ROWS, .threads = 256}, &a);
    compare(d, arranged(d, &acts), got, k, "ek_quantize_operands");
    drop(d, dx), drop(d, acts.q);
    free(x);
}

/* All that a stage reads, without experts or with 3 of them per row. */
static void test_stage(dev *d, int n, int top_k)
{
    const size_t bytes = sizeof(float) * (size_t)(ROWS * n);
    float *x = make_rows(ROWS * (3 + top_k), n, false), weight[ROWS * 3];
    int32_t pair[ROWS * 3];
    for (int i = 0; i < ROWS * top_k; i++)
        pair[i] = (i * 37 + 11) % (ROWS * top_k), weight[i] = uniform(7, (uint64_t)i);
    CUdeviceptr h[2], out[2], y = up(d, x + ROWS * n, bytes), norms = up(d, x + 2 * ROWS * n, bytes), pairs = 0;
    if (top_k) pairs = up(d, x + 3 * ROWS * n, bytes * (size_t)top_k);
    const ek_cuda_acts acts[2] = {records(d, n), records(d, n)};
    CUdeviceptr dw = up(d, weight, sizeof weight), dp = up(d, pair, sizeof pair);
    images got = images_open(d, n);
    const char *const name[] = {top_k ? "ek_experts_end" : "ek_stage",
                                top_k ? "ek_stage_rows_experts" : "ek_stage_rows"};
    for (int i = 0; i < 2; i++) {
        h[i] = up(d, x, bytes), out[i] = up(d, NULL, bytes);
        ek_cuda_stage_rows_args a = {.s = {.h = h[i],
                                           .y = y,
                                           .y_norm = norms,
                                           .pair_out = pairs,
                                           .row_pair = dp,
                                           .weight = dw,
                                           .norm_1 = norms + 4 * (CUdeviceptr)n,
                                           .norm_2 = norms + 8 * (CUdeviceptr)n,
                                           .scalar = dw,
                                           .x_norm = norms + 12 * (CUdeviceptr)n,
                                           .x = out[i],
                                           .to = acts[i],
                                           .ld = n,
                                           .eps = 1e-6f,
                                           .factor = 0.75f,
                                           .n = n,
                                           .top_k = top_k,
                                           .has_factor = top_k == 0}, /* none behind experts */
                                     .to = {got.at[0], got.at[1]}};
        ek_cuda_kernel kernel = find(d, name[i], 0);
        launch(d, &kernel, (ek_cuda_grid){.x = ROWS, .threads = (unsigned)((n + 255) / 256 * 32)},
               i ? (void *)&a : (void *)&a.s);
    }
    compare(d, arranged(d, &acts[0]), got, n, name[1]);
    const CUdeviceptr both[3][2] = {{h[0], h[1]}, {out[0], out[1]}, {acts[0].q, acts[1].q}};
    for (int i = 0; i < 3; i++) {
        const size_t size = i < 2 ? bytes : (size_t)acts[0].ldq * ROWS;
        void *want = down(d, both[i][0], size);
        same(d, want, down(d, both[i][1], size), size, false, "%s of %s, %d elements",
             (const char *const[]){"h", "x", "records"}[i], name[1], n);
        free(want), drop(d, both[i][0]), drop(d, both[i][1]);
    }
    drop(d, y), drop(d, norms), drop(d, pairs), drop(d, dw), drop(d, dp);
    free(x);
}

void test_image(dev *d)
{
    static const int k[] = {64, 192, 1536, 2112, 5376, 8192};
    if (!ek_cuda_chip_of(d->c)->wgmma) return; /* for which they are */
    for (int i = 0; i < (d->quick ? 4 : 6); i++) test_quantized(d, k[i], false), test_quantized(d, k[i], true);
    test_stage(d, 64, 0), test_stage(d, 320, 3);
    if (!d->quick) test_stage(d, 5376, 0), test_stage(d, 2816, 3), test_stage(d, 1536, 0);
}
