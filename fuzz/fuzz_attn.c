/* Attention over pages of arbitrary bytes. Property: every instruction set and every company of a
 * row gives the bits of the definition for that row alone, whatever the keys and values are; codes of
 * i12 are those that a store writes (ops/attn/attn_int.h). */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/hash/rng.h"
#include "ops/attn/attn.h"
#include "ops/kv/kv_codec.h"

enum { MAX_KEYS = 640, MAX_ROWS = 9 };

/* Which NaN comes out is not defined. */
static void one_nan(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(x[i])) x[i] = NAN;
}

static float *attend(unsigned cpu, const ek_attn_shape *sh, const ek_kv_view *view, const ek_attn_row *rows, int n,
                     const float *q)
{
    ek_attn *a;
    if (ek_attn_plan(&a, cpu, sh) != EK_OK) __builtin_trap();
    size_t width = (size_t)sh->n_heads * (size_t)sh->head_dim, bytes = ek_attn_scratch_bytes(a, n, MAX_KEYS, 1);
    void *scratch = ek_alloc_big(bytes);
    float *o = ek_alloc(sizeof *o * width * (size_t)n);
    ek_attn_run(a, NULL, view, rows, n, q, (ptrdiff_t)width, o, (ptrdiff_t)width, scratch);
    one_nan(o, width * (size_t)n);
    ek_free_big(scratch, bytes);
    ek_attn_free(a);
    return o;
}

static void write_codes(const ek_attn_shape *sh, uint8_t *block)
{
    const size_t k = ek_kv_k_bytes(sh->k_format, sh->head_dim), v = ek_kv_v_bytes(sh->v_format, sh->head_dim);
    for (int h = 0; h < sh->n_kv_heads; h++, block += k + v)
        for (int i = 0; i < EK_PAGE_TOKENS * sh->head_dim; i++) {
            if (sh->k_format == EK_KV_I12) ((int16_t *)(void *)block)[i] %= 2048;
            if (sh->v_format == EK_KV_I12) ((int16_t *)(void *)(block + k))[i] %= 2048;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 8) return 0;
    int kv = 1 + data[0] % 2, window = data[3] % 3 ? 0 : 1 + data[3] * 3, last = (data[4] | data[5] << 8) % MAX_KEYS;
    ek_attn_shape sh = {.kind = window ? EK_SLIDING : EK_FULL,
                        .k_format = data[6] % EK_KV_FORMAT_COUNT,
                        .v_format = data[6] / 10 % EK_KV_FORMAT_COUNT,
                        .n_heads = kv * (1 + data[1] % 9),
                        .n_kv_heads = kv,
                        .head_dim = 4 + 4 * (data[2] % 18)};
    int n_rows = 1 + data[7] % MAX_ROWS, n_pages = MAX_KEYS / EK_PAGE_TOKENS;
    n_rows = n_rows > last + 1 ? last + 1 : n_rows;
    size_t block = ek_kv_block_bytes(sh.k_format, sh.v_format, kv, sh.head_dim), bytes = block * (size_t)n_pages;
    uint8_t *pool = ek_alloc_big(bytes);
    int32_t page[MAX_KEYS / EK_PAGE_TOKENS];
    for (size_t i = 0; i < bytes; i++) pool[i] = n > 8 ? data[8 + i * 7 % (n - 8)] : 0x3c;
    for (int i = 0; i < n_pages; i++) page[i] = i, write_codes(&sh, pool + block * (size_t)i);
    ek_kv_view view = {.base = pool, .stride = block, .page = page};
    ek_attn_row rows[MAX_ROWS];
    for (int r = 0; r < n_rows; r++) {
        int end = last - n_rows + 2 + r, lo = window && end > window ? end - window : 0;
        /* every other input: rows see a block that ends with the last of them */
        rows[r] = (ek_attn_row){0, lo, data[7] / MAX_ROWS % 2 ? last + 1 : end};
    }
    size_t width = (size_t)sh.n_heads * (size_t)sh.head_dim;
    float *q = ek_alloc(sizeof *q * width * (size_t)n_rows);
    for (size_t i = 0; i < width * (size_t)n_rows; i++) q[i] = (float)(int32_t)ek_mix64(i + data[7]) * 0x1p-30f;

    const char *const *isa = ek_cpu_isas();
    float *want = attend(0, &sh, &view, rows, n_rows, q);
    for (int r = 0; r < n_rows; r += 4) {
        float *alone = attend(0, &sh, &view, rows + r, 1, q + (size_t)r * width);
        if (memcmp(alone, want + (size_t)r * width, width * sizeof *q) != 0) __builtin_trap();
        free(alone);
    }
    for (; *isa; isa++) {
        unsigned cpu = 0;
        if (ek_cpu_mask(*isa, &cpu) != EK_OK) __builtin_trap();
        float *got = attend(cpu, &sh, &view, rows, n_rows, q);
        if (memcmp(got, want, width * (size_t)n_rows * sizeof *q) != 0) __builtin_trap();
        free(got);
    }
    free(want);
    free(q);
    ek_free_big(pool, bytes);
    return 0;
}
