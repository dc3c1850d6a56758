#include "lib/kernels.h"

#include <pthread.h>

#include "base/cpu.h"
#include "lib/bf16.h"
#include "lib/product_bf16.h"
#include "lib/plain.h"

static void widen(float *to, const uint8_t *from, ek_type t, int64_t n)
{
    plain_widen(to, from, t, n);
}

static void narrow(uint8_t *to, ek_type t, const float *from, int64_t n)
{
    plain_narrow(to, t, from, n);
}

static void affine(float *to, const uint8_t *codes, int n, int bits, float s, float b)
{
    plain_affine(to, codes, n, bits, s, b);
}

static void turn(float *panel, const float *rows)
{
    plain_turn(panel, rows);
}

static void madd(float *acc, const float *const *x, int64_t at, int rows, const float *panel, int depth)
{
    plain_madd(acc, x, at, rows, panel, depth);
}

static void unpack(float *panel, const ek_linear *w, int p0, int k0, int depth)
{
    plain_unpack(panel, w, p0, k0, depth);
}

static void scores(const lib_score_block *b)
{
    plain_scores(b);
}

static void values(const lib_value_run *r)
{
    plain_values(r);
}

static void scores_bf16(const lib_score_block *b)
{
    plain_scores_bf16(b);
}

static void round_bf16(float *e, uint16_t *p, int from, int to, float *l)
{
    plain_round_bf16(e, p, from, to, l);
}

static void values_bf16(const lib_value_run *r)
{
    plain_values_bf16(r);
}

static void pair_row(void *to, float *sum, const float *from, int k, int group)
{
    plain_pair_row(to, sum, from, k, group);
}

static void pair_panel(float *y, ptrdiff_t ldy, const lib_pair_rows *x, int r0, int n, const ek_linear *w, int p,
                       bool fetch)
{
    plain_pair_panel(y, ldy, x, r0, n, w, p, fetch);
}

static void combine(float *b, const float *a, float fb, float fa, int n)
{
    plain_combine(b, a, fb, fa, n);
}

void lib_kernels_init(lib_kernels *k, unsigned cpu)
{
    *k = (lib_kernels){.widen = widen,
                       .narrow = narrow,
                       .affine = affine,
                       .turn = turn,
                       .madd = madd,
                       .unpack = unpack,
                       .scores = scores,
                       .values = values,
                       .scores_bf16 = scores_bf16,
                       .round_bf16 = round_bf16,
                       .values_bf16 = values_bf16,
                       .pair_row = pair_row,
                       .pair_panel = pair_panel,
                       .combine = combine};
    ek_attn_ops attn;
    ek_attn_init(&attn, cpu);
    k->weights = attn.weights;
    ek_row_init(&k->rows, cpu);
    ek_linear_init(&k->linear, cpu);
#if defined(__x86_64__)
    if (cpu & EK_CPU_AVX2) lib_kernels_avx2(k), lib_product_avx2(k);
    if (cpu & EK_CPU_AVX512) lib_kernels_avx512(k), lib_product_avx512(k);
    if (cpu & EK_CPU_BF16) lib_attn_bf16(k), lib_product_bf16(k);
#endif
}

enum { FLAGS = EK_CPU_AVX2 | EK_CPU_AVX512 | EK_CPU_BF16 };
static lib_kernels table[FLAGS + 1];

/* Only what this machine has: the functions that fill in kernels are compiled for their instruction set too. */
static void fill_table(void)
{
    const unsigned here = ek_cpu_detect();
    for (unsigned cpu = 0; cpu <= FLAGS; cpu++)
        if (!(cpu & ~here)) lib_kernels_init(&table[cpu], cpu);
}

const lib_kernels *lib_kernels_of(unsigned cpu)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_table);
    return &table[cpu & FLAGS];
}
