/* A program of its own that uses libevenkeel: y = x w^T for 4-bit weights, one row and three.
 *     cc main.c $(pkg-config --cflags --libs evenkeel) -o hello */
#include <evenkeel_ops.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 3, OUTPUTS = 8, INPUTS = 64 };

int main(void)
{
    static float w[OUTPUTS][INPUTS], x[ROWS][INPUTS], y[ROWS][OUTPUTS], alone[OUTPUTS];
    static uint32_t codes[OUTPUTS][INPUTS / 8];
    static float scales[OUTPUTS][1], biases[OUTPUTS][1];
    ek_qview q = {EK_AFFINE, 4, 64, {0}, {0}, {0}, 0};
    int i, k;

    for (k = 0; k < INPUTS; k++) {
        for (i = 0; i < OUTPUTS; i++) w[i][k] = (float)((i * 7 + k * 5) % 16 - 8) / 8;
        for (i = 0; i < ROWS; i++) x[i][k] = (float)((i * 3 + k) % 9) / 9;
    }
    q.codes = ek_view_2d(codes, EK_TYPE_U32, OUTPUTS, INPUTS / 8);
    q.scales = ek_view_2d(scales, EK_TYPE_F32, OUTPUTS, 1);
    q.biases = ek_view_2d(biases, EK_TYPE_F32, OUTPUTS, 1);
    if (ek_quantize(&q, ek_view_2d(w, EK_TYPE_F32, OUTPUTS, INPUTS)) != EK_DONE ||
        ek_quantized_matmul(ek_view_2d(y, EK_TYPE_F32, ROWS, OUTPUTS), ek_view_2d(x, EK_TYPE_F32, ROWS, INPUTS), &q,
                            true, EK_EXACT) != EK_DONE ||
        ek_quantized_matmul(ek_view_1d(alone, EK_TYPE_F32, OUTPUTS), ek_view_1d(x[1], EK_TYPE_F32, INPUTS), &q, true,
                            EK_EXACT) != EK_DONE) {
        fprintf(stderr, "%s\n", ek_last_error());
        return 1;
    }
    for (i = 0; i < OUTPUTS; i++) printf("%9.5f", y[1][i]);
    printf("\nevenkeel %s, %s: row 1 of three and row 1 alone are %s\n", ek_version(), ek_isa(),
           memcmp(y[1], alone, sizeof alone) == 0 ? "the same bits" : "DIFFERENT");
    return memcmp(y[1], alone, sizeof alone) != 0;
}
