/* The exact product's kernels: the scalar definition against what the header says, every instruction set
 * against the scalar one, bit for bit; and whole tiles against Form F. */
#include <string.h>

#include "base/machine/cpu.h"
#include "check.h"
#include "linear_case.h"
#include "ops/linear/decoded.h"

enum { COLS = EK_DECODED_COLS, DEPTH = EK_DECODED_DEPTH, PANELS = COLS / EK_PANEL };
static const int widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
static const ek_dtype scales[] = {EK_BF16, EK_F32};

static ek_decoded_ops ops_of(unsigned cpu)
{
    ek_decoded_ops ops;
    ek_decoded_init(&ops, cpu);
    return ops;
}

/* Code i of a little-endian bit string, bit by bit. */
static int code_at(const uint8_t *codes, int i, int bits)
{
    int u = 0;
    for (int b = 0; b < bits; b++) u |= (codes[(i * bits + b) / 8] >> (i * bits + b) % 8 & 1) << b;
    return u;
}

static void test_decode(void **state)
{
    (void)state;
    enum { MAX = 128 };
    uint8_t codes[MAX];
    float want[MAX], got[MAX];
    check_fill_bytes(codes, sizeof codes, 1);
    CHECK_ISAS(isa, cpu)
    for (int w = 0; w < 6; w++)
        for (int n = 8; n <= MAX; n += 8) {
            const float s = check_uniform(2, (uint64_t)n), b = check_uniform(3, (uint64_t)n);
            for (int i = 0; i < n; i++) want[i] = __builtin_fmaf(s, (float)code_at(codes, i, widths[w]), b);
            ops_of(cpu).decode(got, codes, n, widths[w], s, b);
            check_bits("decode", isa, want, got, (size_t)n, "%d codes of %d bits", n, widths[w]);
        }
}

static void test_turn(void **state)
{
    (void)state;
    static float rows[EK_PANEL * DEPTH], want[COLS * DEPTH], got[COLS * DEPTH];
    check_fill(rows, EK_PANEL * DEPTH, 1, 1);
    for (int k = 0; k < DEPTH; k++)
        for (int i = 0; i < EK_PANEL; i++) want[k * COLS + EK_PANEL + i] = rows[i * DEPTH + k];
    CHECK_ISAS(isa, cpu)
    {
        memset(got, 0, sizeof got);
        ops_of(cpu).transpose(got + EK_PANEL, rows); /* the second panel of four; the others stay as they are */
        check_bits("transpose", isa, want, got, COLS * DEPTH, "panel 1");
    }
}

static void test_decode_turned(void **state)
{
    (void)state;
    enum { ROW = 71 }; /* bytes: rows at odd addresses */
    static float rows[EK_PANEL * DEPTH], want[COLS * DEPTH], got[COLS * DEPTH];
    uint8_t *codes = check_alloc(EK_PANEL * ROW + 64);
    const uint8_t *row[EK_PANEL];
    float s[EK_PANEL], b[EK_PANEL];
    const ek_decoded_ops plain = ops_of(0);
    check_fill_bytes(codes, EK_PANEL * ROW + 64, 1);
    check_fill(s, EK_PANEL, 2, 1), check_fill(b, EK_PANEL, 3, 1);
    for (int i = 0; i < EK_PANEL; i++) row[i] = codes + i * ROW + 3;
    CHECK_ISAS(isa, cpu)
    for (int bits = 4; bits <= 8 && ops_of(cpu).decode_turned; bits += 4)
        for (int n = 32; n <= DEPTH; n += 32) {
            memset(rows, 0, sizeof rows), memset(want, 0, sizeof want), memset(got, 0, sizeof got);
            for (int i = 0; i < EK_PANEL; i++) plain.decode(rows + i * DEPTH, row[i], n, bits, s[i], b[i]);
            plain.transpose(want, rows);
            ops_of(cpu).decode_turned(got, row, n, bits, s, b);
            check_bits("decode_turned", isa, want, got, COLS * DEPTH, "%d codes of %d bits", n, bits);
        }
    check_free(codes, EK_PANEL * ROW + 64);
}

static void test_madd(void **state)
{
    (void)state;
    enum { ROWS = 50, AT = 3, LDX = AT + DEPTH };
    static float panel[COLS * DEPTH], x[ROWS * LDX], want[ROWS * COLS], got[ROWS * COLS];
    const float *xp[ROWS];
    check_fill_wide(panel, COLS * DEPTH, 1), check_fill_wide(x, ROWS * LDX, 2);
    for (int r = 0; r < ROWS; r++) xp[r] = x + r * LDX;
    CHECK_ISAS(isa, cpu)
    for (int n = 1; n <= ROWS; n += n < 8 ? 1 : 7)
        for (int depth = 1; depth <= DEPTH; depth += 9) {
            check_fill_wide(want, ROWS * COLS, 3);
            memcpy(got, want, sizeof got);
            ops_of(0).madd(want, xp, AT, n, panel, depth);
            ops_of(cpu).madd(got, xp, AT, n, panel, depth);
            check_bits("madd", isa, want, got, ROWS * COLS, "%d rows, %d inputs", n, depth);
        }
}

/* ------------------------------------------------------------------ packed matrices */

enum { N = 90, K = 384 }; /* the sixth panel is cut, and panels 4 and 5 make half a tile */

/* Runs check for matrices of every width, group and type of scales. */
static void each_case(void (*check)(const linear_case *c))
{
    for (int w = 0; w < 6; w++)
        for (int g = 0; g < 3; g++)
            for (int s = 0; s < 2; s++) {
                linear_case c;
                linear_case_open(&c,
                                 &(linear_shape){.form = widths[w] <= 4 ? EK_W_Q4 : EK_W_Q8,
                                                 .n = N,
                                                 .k = K,
                                                 .bits = widths[w],
                                                 .group = groups[g],
                                                 .scale_dtype = scales[s],
                                                 .biased = true},
                                 5);
                check(&c);
                linear_case_close(&c);
            }
}

static void check_unpack(const linear_case *c)
{
    static float want[COLS * DEPTH], got[COLS * DEPTH], row[K];
    for (int k0 = 0; k0 < K; k0 += DEPTH)
        for (int p0 = 0; p0 < c->w.n_panels; p0 += PANELS) {
            memset(want, 0, sizeof want);
            for (int n = 0; n < COLS && p0 * EK_PANEL + n < N; n++) {
                ek_linear_row(&c->w, p0 * EK_PANEL + n, row);
                for (int k = 0; k < DEPTH; k++) want[k * COLS + n] = row[k0 + k];
            }
            CHECK_ISAS(isa, cpu)
            {
                memset(got, 0, sizeof got);
                ops_of(cpu).unpack(got, &c->w, p0, k0, DEPTH);
                check_bits("unpack", isa, want, got, COLS * DEPTH, "%s, panel %d, input %d", c->name, p0, k0);
            }
        }
}

static void test_unpack(void **state)
{
    (void)state;
    each_case(check_unpack);
}

static void check_madd_few(const linear_case *c)
{
    static float x[EK_DECODED_FEW * K], want[EK_DECODED_FEW * COLS], got[EK_DECODED_FEW * COLS], panel[COLS * DEPTH];
    const float *xp[EK_DECODED_FEW] = {x, x + K, x + 2 * K};
    const ek_decoded_ops plain = ops_of(0);
    check_fill_wide(x, EK_DECODED_FEW * K, 8);
    CHECK_ISAS(isa, cpu)
    for (int rows = 1; rows <= EK_DECODED_FEW && ops_of(cpu).madd_few; rows++)
        for (int k0 = 0; k0 < K; k0 += EK_KBLOCK) {
            const int depth = K - k0 < EK_KBLOCK ? K - k0 : EK_KBLOCK;
            check_fill_wide(want, EK_DECODED_FEW * COLS, 9);
            memcpy(got, want, sizeof got);
            for (int at = k0; at < k0 + depth; at += DEPTH) {
                plain.unpack(panel, &c->w, 0, at, DEPTH);
                plain.madd(want, xp, at, rows, panel, DEPTH);
            }
            ops_of(cpu).madd_few(got, xp, rows, &c->w, 0, k0, depth);
            check_bits("madd_few", isa, want, got, EK_DECODED_FEW * COLS, "%s, %d rows, input %d", c->name, rows, k0);
        }
}

static void test_madd_few(void **state)
{
    (void)state;
    each_case(check_madd_few);
}

/* ------------------------------------------------------------------ tiles */

enum { TILE_ROWS = 7, TILE_K = 2 * EK_KBLOCK + 100 };

static float weight[COLS][TILE_K];

static void fill_from_weights(const void *source, int64_t k0, int depth, float *panel)
{
    (void)source;
    for (int k = 0; k < depth; k++)
        for (int n = 0; n < COLS; n++) panel[k * COLS + n] = weight[n][k0 + k];
}

/* The sums of a tile are those of Form F, the packed float matrix, for any depth and any number of rows. */
static void test_tile(void **state)
{
    (void)state;
    static float x[TILE_ROWS * TILE_K], want[TILE_ROWS * COLS];
    const float *xp[TILE_ROWS];
    check_fill_wide(weight[0], COLS * TILE_K, 1), check_fill_wide(x, TILE_ROWS * TILE_K, 2);
    for (int r = 0; r < TILE_ROWS; r++) xp[r] = x + r * TILE_K;
    for (int k = 1; k <= TILE_K; k += 87) {
        linear_case c;
        ek_acts a;
        linear_case_open(&c, &(linear_shape){.form = EK_W_F32, .n = COLS, .k = k, .scale_dtype = EK_F32}, 3);
        for (int n = 0; n < COLS; n++)
            for (int i = 0; i < k; i++)
                ((float *)(c.w.data + (size_t)(n / EK_PANEL) * c.w.panel_bytes))[i * EK_PANEL + n % EK_PANEL] =
                    weight[n][i];
        ek_acts_bind(&a, NULL, x, TILE_K, TILE_ROWS, k);
        c.w.run(&c.w, &a, 0, TILE_ROWS, want, COLS, 0, PANELS);
        CHECK_ISAS(isa, cpu)
        for (int rows = 1; rows <= TILE_ROWS; rows++) {
            const ek_decoded_ops ops = ops_of(cpu);
            const ek_decoded_source from = {.fill = fill_from_weights};
            const size_t bytes = ek_decoded_scratch(rows, k) * sizeof(float);
            float *scratch = check_alloc(bytes);
            const float *got = ek_decoded_tile(&ops, xp, rows, k, &from, scratch);
            check_bits("tile", isa, want, got, (size_t)rows * COLS, "%d rows, %d inputs", rows, k);
            check_free(scratch, bytes);
        }
        linear_case_close(&c);
    }
}

/* No inputs: sums of nothing. */
static void test_tile_of_nothing(void **state)
{
    (void)state;
    static float scratch[COLS * DEPTH + 4 * COLS], zeros[COLS];
    const float *x[1] = {zeros};
    const ek_decoded_ops ops = ops_of(0);
    const ek_decoded_source from = {.fill = fill_from_weights};
    assert_true(ek_decoded_scratch(1, 0) <= sizeof scratch / sizeof *scratch);
    check_fill(scratch, sizeof scratch / sizeof *scratch, 1, 1);
    check_bits("tile", "scalar", zeros, ek_decoded_tile(&ops, x, 1, 0, &from, scratch), COLS, "no inputs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),        cmocka_unit_test(test_turn),
        cmocka_unit_test(test_decode_turned), cmocka_unit_test(test_madd),
        cmocka_unit_test(test_unpack),        cmocka_unit_test(test_madd_few),
        cmocka_unit_test(test_tile),          cmocka_unit_test(test_tile_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
