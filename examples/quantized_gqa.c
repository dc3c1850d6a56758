/* Quantised keys and values of one head, shared by several query heads through a batch dimension
 * of stride 0, against the product with the dequantised tensor. In the report that this repeats,
 * few rows went to another kernel and came back wrong, by up to 12.46. */
#include "random.h"

enum { KV_HEADS = 2, SHARE = 4, DIM = 256, BITS = 4, GROUP = 64 };

static ek_view repeat(ek_view v)
{
    return ek_view_expand(ek_view_insert(v, 1), 1, SHARE); /* [H, S, c] -> [H, share of stride 0, S, c] */
}

/* Returns how many elements differ; *max_off is the largest difference. */
static size_t compare(const ek_qview *q, ek_view values, const float *x, int m, int outputs, int inputs, bool transpose,
                      float *y, float *max_off)
{
    size_t n = (size_t)KV_HEADS * SHARE * (size_t)m * (size_t)outputs, i, d;
    float *want = malloc(n * sizeof *want);
    ek_view xv = ek_view_4d((void *)x, EK_TYPE_F32, KV_HEADS, SHARE, m, inputs);
    ek_qview wide = *q;
    wide.codes = repeat(q->codes), wide.scales = repeat(q->scales), wide.biases = repeat(q->biases);
    must(ek_quantized_matmul(ek_view_4d(y, EK_TYPE_F32, KV_HEADS, SHARE, m, outputs), xv, &wide, transpose, EK_EXACT));
    must(ek_matmul(ek_view_4d(want, EK_TYPE_F32, KV_HEADS, SHARE, m, outputs), xv, repeat(values), transpose));
    d = differing(want, y, n);
    for (*max_off = 0, i = 0; i < n; i++)
        if (!(fabsf(want[i] - y[i]) <= *max_off)) *max_off = fabsf(want[i] - y[i]);
    free(want);
    return d;
}

int main(void)
{
    static const int keys[] = {512, 2048, 4096, 7358}, rows[] = {1, 2, 3, 4, 8};
    int s, r, side;
    size_t failed = 0;
    printf("%d-bit keys and values, groups of %d, head size %d, %d query heads on each KV head by a stride of 0.\n",
           BITS, GROUP, DIM, SHARE);
    printf("Against dequantise-then-multiply; row 0 against the same row in the call of one row.\n\n");
    printf("%6s %3s   %20s %20s   %20s %20s\n", "", "", "q k^T: differ, max", "row 0 differs", "p v: differ, max",
           "row 0 differs");
    for (s = 0; s < 4; s++) {
        int n = keys[s];
        float *kv = numbers((size_t)KV_HEADS * (size_t)n * DIM, 1),
              *back = malloc((size_t)KV_HEADS * (size_t)n * DIM * sizeof *back);
        ek_view values = ek_view_3d(back, EK_TYPE_F32, KV_HEADS, n, DIM);
        float *first[2] = {NULL, NULL};
        ek_qview q = {EK_AFFINE, BITS, GROUP, {0}, {0}, {0}, 0};
        void *codes = malloc((size_t)KV_HEADS * (size_t)n * DIM * BITS / 8),
             *scales = malloc((size_t)KV_HEADS * (size_t)n * DIM / GROUP * 4);
        void *biases = malloc((size_t)KV_HEADS * (size_t)n * DIM / GROUP * 4);
        q.codes = ek_view_3d(codes, EK_TYPE_U32, KV_HEADS, n, DIM * BITS / 32);
        q.scales = ek_view_3d(scales, EK_TYPE_F32, KV_HEADS, n, DIM / GROUP);
        q.biases = ek_view_3d(biases, EK_TYPE_F32, KV_HEADS, n, DIM / GROUP);
        must(ek_quantize(&q, ek_view_3d(kv, EK_TYPE_F32, KV_HEADS, n, DIM)));
        must(ek_dequantize(values, &q));
        for (r = 0; r < 5; r++) {
            int m = rows[r];
            printf("%6d %3d", n, m);
            for (side = 0; side < 2; side++) { /* scores q k^T, then p v */
                int outputs = side ? DIM : n, inputs = side ? n : DIM, h, i;
                size_t heads = KV_HEADS * SHARE, d, moved = 0;
                float max_off, *one = numbers(heads * 8 * (size_t)inputs, 2),
                               *x = malloc(heads * (size_t)m * (size_t)inputs * sizeof *x);
                float *y = malloc(heads * (size_t)m * (size_t)outputs * sizeof *y);
                for (h = 0; h < (int)heads; h++) /* row i of head h is the same for every m */
                    for (i = 0; i < m; i++)
                        memcpy(x + ((size_t)h * (size_t)m + (size_t)i) * (size_t)inputs,
                               one + ((size_t)h * 8 + (size_t)i) * (size_t)inputs, (size_t)inputs * sizeof *x);
                d = compare(&q, values, x, m, outputs, inputs, side == 0, y, &max_off);
                if (r == 0) first[side] = y;
                for (h = 0; h < (int)heads; h++)
                    moved += differing(first[side] + (size_t)h * (size_t)outputs,
                                       y + (size_t)h * (size_t)m * (size_t)outputs, (size_t)outputs);
                printf("   %9zu, %9.3g %20zu", d, (double)max_off, moved);
                failed += d + moved;
                free(one), free(x);
                if (r > 0) free(y);
            }
            printf("\n");
        }
        free(first[0]), free(first[1]), free(kv), free(back), free(codes), free(scales), free(biases);
    }
    printf("\n%s\n", failed ? "DIFFERENT" : "the same bits everywhere");
    return failed != 0;
}
