/* A sequence alone, and the same sequence in a batch behind padding that a boolean mask hides. In
 * the report that this repeats, padding moved the keys to other tiles and changed the sums. Here
 * the padding is NaN, so that a single read of it would show. */
#include "random.h"

enum { HEADS = 8, KV_HEADS = 2, DIM = 128, QUERIES = 4 };

int main(void)
{
    static const int lengths[] = {1, 20, 255, 256, 257, 1000}, pads[] = {1, 3, 31, 32, 33, 255};
    size_t l, p, failed = 0;
    printf("attention, %d query heads on %d, head size %d: elements that differ from the sequence alone\n\n%8s", HEADS,
           KV_HEADS, DIM, "keys");
    for (p = 0; p < 6; p++) printf("   pad %4d", pads[p]);
    printf("\n");
    for (l = 0; l < 6; l++) {
        int len = lengths[l], m = len < QUERIES ? len : QUERIES;
        size_t n = (size_t)HEADS * (size_t)m * DIM;
        float *q = numbers(n, 1), *alone = malloc(n * sizeof *alone), *padded = malloc(n * sizeof *padded);
        printf("%8d", len);
        for (p = 0; p < 6; p++) {
            int pad = pads[p], all = pad + len, i;
            size_t size = (size_t)KV_HEADS * (size_t)all * DIM, d;
            float *k = numbers(size, 2), *v = numbers(size, 3);
            uint8_t *seen = malloc((size_t)all);
            ek_view kv = ek_view_4d(k, EK_TYPE_F32, 1, KV_HEADS, all, DIM),
                    vv = ek_view_4d(v, EK_TYPE_F32, 1, KV_HEADS, all, DIM);
            ek_view qv = ek_view_4d(q, EK_TYPE_F32, 1, HEADS, m, DIM),
                    mask = ek_view_4d(seen, EK_TYPE_U8, 1, 1, 1, all);
            ek_sdpa_options o = {0};
            for (i = 0; i < all; i++) seen[i] = i >= pad;
            for (i = 0; i < KV_HEADS * all * DIM; i++)
                if (i / DIM % all < pad) k[i] = v[i] = (float)NAN;
            o.causal = true;
            must(ek_sdpa(ek_view_4d(alone, EK_TYPE_F32, 1, HEADS, m, DIM), qv, ek_view_slice(kv, 2, pad, all),
                         ek_view_slice(vv, 2, pad, all), &o));
            o.mask = &mask;
            must(ek_sdpa(ek_view_4d(padded, EK_TYPE_F32, 1, HEADS, m, DIM), qv, kv, vv, &o));
            d = differing(alone, padded, n);
            failed += d;
            printf(" %10zu", d);
            free(k), free(v), free(seen);
        }
        printf("\n");
        free(q), free(alone), free(padded);
    }
    printf("\n%s\n", failed ? "DIFFERENT" : "the same bits everywhere");
    return failed != 0;
}
