/* Weight types: every row of floats and of MLX against its format read bit by bit (GGUF's blocks: test_gguf_types.c).
 */
#include "check.h"

#include <math.h>

#include "linear_case.h"

/* ------------------------------------------------------------------ the table */

static int code_of(const ek_weight_data *w, int row, int i)
{
    const ek_weight_type *t = w->type;
    size_t bit = (size_t)row * (size_t)w->k * (size_t)t->bits + (size_t)i * (size_t)t->bits;
    int u = 0;
    for (int j = 0; j < t->bits; j++, bit++) u |= (w->plane[0][bit / 8] >> bit % 8 & 1) << j;
    return u;
}

static float element_of(const uint8_t *p, size_t i, ek_dtype t)
{
    if (t == EK_F32)
        return ek_bits_f32((uint32_t)p[4 * i] | (uint32_t)p[4 * i + 1] << 8 | (uint32_t)p[4 * i + 2] << 16 |
                           (uint32_t)p[4 * i + 3] << 24);
    uint16_t h = (uint16_t)(p[2 * i] | p[2 * i + 1] << 8);
    return t == EK_BF16 ? ek_bf16_f32(h) : ek_f16_f32(h);
}

static void check_row(const ek_weight_data *w, int row)
{
    const ek_weight_type *t = w->type;
    float want[384], got[384];
    uint8_t u[384 + 8];
    float s[384 / 16], b[384 / 16];
    for (int i = 0; i < w->k; i++) {
        if (t->load) {
            want[i] = element_of(w->plane[0], (size_t)row * (size_t)w->k + (size_t)i, t->stored);
            continue;
        }
        size_t group = (size_t)row * (size_t)(w->k / t->group) + (size_t)(i / t->group);
        int code = code_of(w, row, i);
        float scale = element_of(w->plane[1], group, t->stored);
        want[i] = t->biased ? fmaf(scale, (float)code, element_of(w->plane[2], group, t->stored))
                            : scale * (float)(code - (1 << (t->bits - 1)));
        int first = i / t->block * t->block;
        if (i % t->block == 0) t->unpack(w, row, first, t->block, u, s, b);
        assert_int_equal(u[i - first], code);
        assert_true(s[(i - first) / t->group] == scale);
        assert_true(!t->biased || b[(i - first) / t->group] == element_of(w->plane[2], group, t->stored));
    }
    ek_weight_row(w, row, 0, w->k, got);
    check_bits(t->name, "scalar", want, got, (size_t)w->k, "row %d", row);
}

static void every_row_of_the_table(void **state)
{
    (void)state;
    enum { N = 3, K = 384 };
    int count;
    const ek_weight_type *t = ek_weight_types(&count);
    int blocks = 0;
    for (int i = 0; i < count; i++, t++) {
        assert_true(!t->unpack != !t->load);
        assert_true(EK_UNPACK_WEIGHTS % t->block == 0 && (!t->group || t->block % t->group == 0));
        if (t->unpack && !t->block_bytes[1]) { /* GGUF */
            assert_ptr_equal(ek_weight_type_named(t->name), t);
            blocks++;
            continue;
        }
        assert_true(t->load || (t->zero == 1 << (t->bits - 1) && t->form == (t->bits <= 4 ? EK_W_Q4 : EK_W_Q8)));
        ek_weight_data w = {.type = t, .n = N, .k = K};
        size_t all = 0;
        void *plane[EK_WEIGHT_PLANES] = {0};
        for (int p = 0; p < EK_WEIGHT_PLANES && t->block_bytes[p]; p++) { /* guarded: nothing may read past a row */
            size_t bytes = (size_t)(N * K / t->block) * t->block_bytes[p];
            w.plane[p] = plane[p] = check_alloc(bytes);
            check_fill_bytes(plane[p], (bytes + 63) / 64 * 64, (uint64_t)(40 + p));
            if (t->load || p)
                for (size_t e = 0; e < bytes / ek_dtype_size(t->stored); e++) { /* no infinities */
                    uint8_t *top = (uint8_t *)plane[p] + (e + 1) * ek_dtype_size(t->stored) - 1;
                    *top &= 0xbf;
                }
            all += bytes;
        }
        assert_int_equal(all, N * ek_weight_row_bytes(t, K));
        for (int row = 0; row < N; row++) check_row(&w, row);
        ek_weight_data tail = ek_weight_rows(&w, 1, N - 1), last = ek_weight_rows(&tail, N - 2, 1); /* of a piece */
        float a[K], b[K];
        ek_weight_row(&w, N - 1, 0, K, a), ek_weight_row(&last, 0, 0, K, b);
        check_bits(t->name, "scalar", a, b, K, "the last row as a piece");
        for (int p = 0; p < EK_WEIGHT_PLANES && t->block_bytes[p]; p++)
            check_free(plane[p], (size_t)(N * K / t->block) * t->block_bytes[p]);
    }
    assert_int_equal(count - blocks, 3 + 6 * 3 * 3 * 2);
    assert_int_equal(blocks, 14);
    assert_null(ek_weight_type_named("q4_2"));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(every_row_of_the_table)};
    return CHECK_RUN(argc, argv, tests);
}
