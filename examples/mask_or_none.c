/* Attention with no mask, and with masks that hide nothing. In the report that this repeats, an
 * all-true mask sent the same question down another kernel and changed the answer's bits. */
#include "random.h"

enum { HEADS = 8, KV_HEADS = 2, KEYS = 1031, DIM = 256 };

int main(void)
{
    static const int rows[] = {1, 2, 8, 9, 64};
    size_t r, failed = 0;
    float *k = numbers((size_t)KV_HEADS * KEYS * DIM, 1), *v = numbers((size_t)KV_HEADS * KEYS * DIM, 2);
    ek_view kv = ek_view_4d(k, EK_TYPE_F32, 1, KV_HEADS, KEYS, DIM),
            vv = ek_view_4d(v, EK_TYPE_F32, 1, KV_HEADS, KEYS, DIM);

    printf("attention, %d query heads on %d, %d keys, head size %d: elements that differ from mask none\n\n", HEADS,
           KV_HEADS, KEYS, DIM);
    printf("%8s %12s %12s %12s %12s %16s\n", "queries", "scalar true", "[kL] true", "full true", "added 0.0",
           "causal, as mask");
    for (r = 0; r < sizeof rows / sizeof *rows; r++) {
        int m = rows[r], i, j, kind;
        size_t n = (size_t)HEADS * (size_t)m * DIM, d[5];
        float *q = numbers(n, 3), *none = malloc(n * sizeof *none), *got = malloc(n * sizeof *got);
        float *zeros = calloc((size_t)KEYS, sizeof *zeros);
        uint8_t *ones = malloc((size_t)HEADS * (size_t)m * KEYS), *triangle = malloc((size_t)m * KEYS);
        ek_view qv = ek_view_4d(q, EK_TYPE_F32, 1, HEADS, m, DIM), masks[5];
        memset(ones, 1, (size_t)HEADS * (size_t)m * KEYS);
        for (i = 0; i < m; i++)
            for (j = 0; j < KEYS; j++) triangle[i * KEYS + j] = j <= i + KEYS - m;
        masks[0] = ek_view_dense(ones, EK_TYPE_U8, 0, NULL);
        masks[1] = ek_view_1d(ones, EK_TYPE_U8, KEYS);
        masks[2] = ek_view_4d(ones, EK_TYPE_U8, 1, HEADS, m, KEYS);
        masks[3] = ek_view_1d(zeros, EK_TYPE_F32, KEYS);
        masks[4] = ek_view_2d(triangle, EK_TYPE_U8, m, KEYS);
        for (kind = 0; kind < 5; kind++) {
            ek_sdpa_options o = {0};
            o.causal = kind == 4;
            must(ek_sdpa(ek_view_4d(none, EK_TYPE_F32, 1, HEADS, m, DIM), qv, kv, vv, &o));
            o.causal = false;
            o.mask = &masks[kind];
            must(ek_sdpa(ek_view_4d(got, EK_TYPE_F32, 1, HEADS, m, DIM), qv, kv, vv, &o));
            d[kind] = differing(none, got, n);
            failed += d[kind];
        }
        printf("%8d %12zu %12zu %12zu %12zu %16zu\n", m, d[0], d[1], d[2], d[3], d[4]);
        free(q), free(none), free(got), free(zeros), free(ones), free(triangle);
    }
    printf("\n%s\n", failed ? "DIFFERENT" : "the same bits everywhere");
    free(k), free(v);
    return failed != 0;
}
