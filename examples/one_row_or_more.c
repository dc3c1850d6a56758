/* A row of a product, alone and beside other rows. In the report that this repeats, a second
 * request in the batch changed the first one's bits, because two rows went to another kernel. */
#include "random.h"

enum { N = 1000, K = 2048 };

int main(void)
{
    static const int bits[] = {2, 3, 4, 5, 6, 8}, rows[] = {2, 3, 8, 9, 14, 33, 64};
    static const char *const names[] = {"exact", "int16", "int8"};
    int b, r, p;
    size_t failed = 0;
    float *w = numbers((size_t)N * K, 1), *x = numbers((size_t)64 * K, 2);
    float *one = malloc(N * sizeof *one), *many = malloc((size_t)64 * N * sizeof *many);
    printf(
        "x [M, %d] times quantised w [%d, %d], groups of 64: elements of row 0 that differ from M = 1\n\n%5s %6s %9s",
        K, N, K, "bits", "form", "");
    for (r = 0; r < 7; r++) printf("  M = %2d", rows[r]);
    printf("\n");
    for (b = 0; b < 6; b++) {
        ek_qview q = {EK_AFFINE, 0, 64, {0}, {0}, {0}, 0};
        void *codes = malloc((size_t)N * K * (size_t)bits[b] / 8), *scales = malloc(N * K / 64 * 2),
             *biases = malloc(N * K / 64 * 2);
        ek_packed *packed;
        q.bits = bits[b];
        q.codes = ek_view_2d(codes, EK_TYPE_U32, N, K * bits[b] / 32);
        q.scales = ek_view_2d(scales, EK_TYPE_BF16, N, K / 64), q.biases = ek_view_2d(biases, EK_TYPE_BF16, N, K / 64);
        must(ek_quantize(&q, ek_view_2d(w, EK_TYPE_F32, N, K)));
        must(ek_pack_quantized(&packed, &q, true));
        for (p = 0; p < 6; p++) {
            ek_precision form = (ek_precision)(p / 2);
            printf("%5d %6s %9s", bits[b], names[form], p % 2 ? "packed" : "");
            must(ek_quantized_matmul(ek_view_2d(one, EK_TYPE_F32, 1, N), ek_view_2d(x, EK_TYPE_F32, 1, K), &q, true,
                                     form));
            for (r = 0; r < 7; r++) {
                ek_view xv = ek_view_2d(x, EK_TYPE_F32, rows[r], K), yv = ek_view_2d(many, EK_TYPE_F32, rows[r], N);
                size_t d;
                must(p % 2 ? ek_packed_matmul(yv, xv, packed, form) : ek_quantized_matmul(yv, xv, &q, true, form));
                d = differing(one, many, N);
                failed += d;
                printf("  %6zu", d);
            }
            printf("\n");
        }
        ek_packed_free(packed);
        free(codes), free(scales), free(biases);
    }
    printf("\n%s\n", failed ? "DIFFERENT" : "the same bits everywhere");
    free(w), free(x), free(one), free(many);
    return failed != 0;
}
