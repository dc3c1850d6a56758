/* A tile of the exact product, and the scalar definition of its parts. */
#include "ops/linear/decoded.h"

#include <math.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "ops/tree.h"

static void decode(float *to, const uint8_t *codes, int n, int bits, float s, float b)
{
    uint8_t u[8];
    for (int i = 0; i < n; i += 8, codes += bits) {
        ek_unpack_bits(u, codes, 8, bits);
        for (int j = 0; j < 8; j++) to[i + j] = ek_weight_value(u[j], 0, s, true, b);
    }
}

static void transpose(float *panel, const float *rows)
{
    for (int k = 0; k < EK_DECODED_DEPTH; k++)
        for (int i = 0; i < EK_PANEL; i++) panel[k * EK_DECODED_COLS + i] = rows[i * EK_DECODED_DEPTH + k];
}

static void unpack(float *panel, const ek_linear *w, int p0, int k0, int depth)
{
    for (int p = 0; p < EK_DECODED_COLS / EK_PANEL && p0 + p < w->n_panels; p++)
        for (int i = 0; i < depth; i++) {
            const uint8_t *group = w->data + (size_t)(p0 + p) * w->panel_bytes +
                                   (size_t)((k0 + i) / w->group) * ek_linear_group_bytes(w);
            for (int o = 0; o < EK_PANEL; o++) {
                int u = ek_linear_code(w, group, o, (k0 + i) % w->group) + w->zero;
                panel[i * EK_DECODED_COLS + p * EK_PANEL + o] = ek_weight_value(
                    u, w->zero, ek_linear_scale(w, group, o), true, ek_linear_scale(w, group, EK_PANEL + o));
            }
        }
}

static void madd(float *acc, const float *const *x, int64_t at, int rows, const float *panel, int depth)
{
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < depth; k++)
            for (int n = 0; n < EK_DECODED_COLS; n++) {
                float *a = &acc[r * EK_DECODED_COLS + n];
                *a = fmaf(x[r][at + k], panel[k * EK_DECODED_COLS + n], *a);
            }
}

void ek_decoded_init(ek_decoded_ops *ops, unsigned cpu)
{
    *ops = (ek_decoded_ops){.decode = decode, .transpose = transpose, .unpack = unpack, .madd = madd};
#if defined(__x86_64__)
    if (cpu & EK_CPU_AVX2) ek_decoded_table_avx2(ops);
    if (cpu & EK_CPU_AVX512) ek_decoded_table_avx512(ops);
#else
    (void)cpu;
#endif
}

/* ------------------------------------------------------------------ a tile */

static int64_t blocks_of(int64_t k)
{
    return (k + EK_KBLOCK - 1) / EK_KBLOCK;
}

static size_t levels_of(int64_t k) /* nodes of the tree over that many blocks */
{
    size_t levels = 1;
    for (int64_t blocks = blocks_of(k); blocks > 1; blocks /= 2) levels++;
    return levels;
}

enum { PANEL_FLOATS = EK_DECODED_COLS * EK_DECODED_DEPTH };

size_t ek_decoded_scratch(int rows, int64_t k)
{
    return PANEL_FLOATS + (size_t)rows * EK_DECODED_COLS * (1 + levels_of(k)); /* panel, sums of a block, tree */
}

static void add_block(const ek_decoded_ops *ops, const float *const *x, int rows, int64_t k0, int64_t end,
                      const ek_decoded_source *from, float *panel, float *acc)
{
    memset(acc, 0, sizeof *acc * (size_t)rows * EK_DECODED_COLS);
    if (from->packed && ops->madd_few && rows <= EK_DECODED_FEW) {
        ops->madd_few(acc, x, rows, from->packed, from->p0, k0, (int)(end - k0));
        return;
    }
    for (int64_t at = k0; at < end; at += EK_DECODED_DEPTH) {
        int depth = (int)(end - at < EK_DECODED_DEPTH ? end - at : EK_DECODED_DEPTH);
        from->fill(from->source, at, depth, panel);
        ops->madd(acc, x, at, rows, panel, depth);
    }
}

const float *ek_decoded_tile(const ek_decoded_ops *ops, const float *const *x, int rows, int64_t k,
                             const ek_decoded_source *from, float *scratch)
{
    const size_t floats = (size_t)rows * EK_DECODED_COLS;
    float *acc = scratch + PANEL_FLOATS, *node = acc + floats;
    uint64_t blocks = 0;
    for (int64_t k0 = 0; k0 < k; k0 += EK_KBLOCK, blocks++) {
        add_block(ops, x, rows, k0, k < k0 + EK_KBLOCK ? k : k0 + EK_KBLOCK, from, scratch, acc);
        ek_tree_push_row(node, blocks, acc, floats);
    }
    return ek_tree_sum_row(node, blocks, floats);
}
