/* Which kernel of attention a step's rows get and of how many queries its tiles are, on an H100, is what
 * tests/cuda/attn_choices.txt says; `test_attn_choices --write` writes it anew. Other chips go by their own numbers. No
 * GPU is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "cuda/attn/choose.h"

#define TABLE "tests/cuda/attn_choices.txt"

/* Query and KV heads, and dims of a head, of the published models' layers. */
static const struct {
    int heads, kv_heads, dim;
} layers[] = {{8, 1, 256},  {8, 1, 512},  {8, 2, 256},   {16, 8, 256},
              {16, 1, 512}, {16, 2, 512}, {32, 16, 256}, {32, 4, 512}};

static void say(ek_buf *out, const ek_cuda_chip *chip)
{
    ek_buf_str(
        out,
        "# heads kv_heads dim: rows tile; half tiles of 1 and of 4 segments a row; depth, in segments of all rows, "
        "from which on a tile of 8 goes deep (f16, bf16); tiles of prompts, of 1 and of 100 segments, up to which they are "
        "too few (f16, i12, 8)\n");
    for (size_t l = 0; l < sizeof layers / sizeof *layers; l++) {
        const int heads = layers[l].heads, kv = layers[l].kv_heads, ratio = heads / kv;
        ek_buf_fmt(out, "%d %d %d:", heads, kv, layers[l].dim);
        for (int rows = 1; rows <= 512; rows *= 2)
            ek_buf_fmt(out, " %d/%d/%d/%d", rows, ek_cuda_attn_few_tile(ratio, rows),
                       ek_cuda_attn_half_tile(ratio, kv, rows, 1, chip),
                       ek_cuda_attn_half_tile(ratio, kv, 4 * rows, 4, chip));
        static const ek_kv_format formats[] = {EK_KV_F16, EK_KV_BF16};
        for (int f = 0; f < 2; f++) {
            int deep = 0;
            for (int n = 1; n <= 4096 && !deep; n++)
                if (ek_cuda_attn_goes_deep(ratio, layers[l].dim, formats[f], formats[f], EK_CUDA_ATTN_DEEP_TILE, n,
                                           chip))
                    deep = n;
            ek_buf_fmt(out, " deep %d", deep);
        }
        static const ek_kv_format kinds[] = {EK_KV_F16, EK_KV_I12, EK_KV_Q8};
        for (int f = 0; f < 3; f++)
            ek_buf_fmt(out, "%s%d/%d", f ? " " : " idle ",
                       ek_cuda_attn_idle_prompts(ratio, layers[l].dim, kinds[f], kinds[f], 1, chip),
                       ek_cuda_attn_idle_prompts(ratio, layers[l].dim, kinds[f], kinds[f], 100, chip));
        ek_buf_char(out, '\n');
    }
    ek_buf_str(out, "tiles of integers:");
    for (int q = 1; q <= 16; q++)
        ek_buf_fmt(out, " %d", ek_cuda_attn_int_tile(q, 256, EK_KV_I12, EK_KV_I12, INT_MAX, chip));
    int own = 0;
    while (ek_cuda_attn_int_owns(EK_KV_I12, EK_KV_I12, own + 1, chip)) own++;
    int many = own;
    while (!ek_cuda_attn_int_is_many(EK_KV_I12, EK_KV_I12, many, chip)) many++;
    ek_buf_fmt(out, "; of two up to %d segments, by four warps from %d", own, many);
    ek_buf_fmt(out, "\nprompts: %d from %d queries\n", ek_cuda_attn_has_prompts(EK_KV_F16, chip),
               EK_CUDA_PROMPT_QUERIES);
}

static void as_the_table_says(void **state)
{
    (void)state;
    const ek_cuda_chip h100 = ek_cuda_chip_like(90, 132);
    ek_buf now = {0}, then = {0};
    say(&now, &h100);
    assert_int_equal(ek_file_read(&then, TABLE, 1 << 20), EK_OK);
    assert_string_equal(ek_buf_text(&now), ek_buf_text(&then));
    ek_buf_fini(&now);
    ek_buf_fini(&then);
}

/* More than a block for each multiprocessor that the chip has, not for each of an H100. */
static void by_its_own_multiprocessors(void **state)
{
    (void)state;
    static const int sizes[] = {78, 114, 132, 148, 170};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const ek_cuda_chip chip = ek_cuda_chip_like(90, sizes[i]);
        assert_false(ek_cuda_attn_goes_deep(8, 512, EK_KV_F16, EK_KV_F16, EK_CUDA_ATTN_DEEP_TILE, sizes[i], &chip));
        assert_true(ek_cuda_attn_goes_deep(8, 512, EK_KV_F16, EK_KV_F16, EK_CUDA_ATTN_DEEP_TILE, sizes[i] + 1, &chip));
        assert_false(ek_cuda_attn_goes_deep(8, 512, EK_KV_F16, EK_KV_F16, EK_CUDA_ATTN_DEEP_TILE / 2, 4096, &chip));
        assert_true(ek_cuda_attn_int_owns(EK_KV_I12, EK_KV_I12, sizes[i], &chip));
        assert_false(ek_cuda_attn_int_owns(EK_KV_I12, EK_KV_I12, sizes[i] + 1, &chip));
        assert_int_equal(ek_cuda_attn_half_tile(8, 1, sizes[i] / 8, 4, &chip), 1);
        assert_int_equal(ek_cuda_attn_half_tile(8, 1, sizes[i] / 8 + 1, 4, &chip), 2);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--write")) {
        const ek_cuda_chip h100 = ek_cuda_chip_like(90, 132);
        ek_buf now = {0};
        say(&now, &h100);
        FILE *to = fopen(TABLE, "wb");
        const bool ok = to && fwrite(ek_buf_text(&now), 1, now.len, to) == now.len && !fclose(to);
        ek_buf_fini(&now);
        return !ok;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_table_says),
        cmocka_unit_test(by_its_own_multiprocessors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
