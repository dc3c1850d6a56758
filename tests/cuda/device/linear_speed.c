/* Times of products: those that a plan chooses, one kernel against the others, and between calls of attention. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/device_pack.h"
#include "linear.h"

static void queue(void *arg, int i)
{
    product *p = arg;
    ek_cuda_linear_args_of(&p->a, &p->l, p->weights + (size_t)i % p->copies * p->l.bytes);
    run_product(p);
}

static void time_product(dev *d, shape *s, const int *rows)
{
    ek_linear w;
    ek_cuda_linear l;
    open_weights(&w, s, 0);
    must(ek_cuda_linear_plan(&l, &w));
    uint8_t *packed = malloc(l.bytes);
    device_pack(&l, &w, packed, 0, 1);
    size_t unit = l.code_bytes / (size_t)l.n_panels; /* the first panel for all: packing takes longer than timing */
    for (int p = 1; p < l.n_panels; p++) {
        memcpy(packed + (size_t)p * unit, packed, unit);
        if (s->bits)
            memcpy(packed + l.code_bytes + (size_t)p * (l.scale_bytes / (size_t)l.n_panels), packed + l.code_bytes,
                   l.scale_bytes / (size_t)l.n_panels);
    }
    size_t copies = 300000000 / l.bytes + 1;
    copies = copies > 60 ? 60 : copies;
    CUdeviceptr weights = up(d, NULL, copies * l.bytes);
    for (size_t c = 0; c < copies; c++) must(ek_cuda_upload(d->c, weights + c * l.bytes, packed, l.bytes));
    must(ek_cuda_sync(d->c));
    static const char *const names[] = {"units ", "tiles ", "warps ", "wide  ", "mid   ", "short ", "few   ", "many  "};
    printf("%s %s%d bits %d limbs %6d x %5d, %6.1f MB:", gguf ? gguf : "", by_kernel < 0 ? "" : names[by_kernel],
           s->bits, s->limbs, s->n, s->k, (double)l.bytes * 1e-6);
    for (; *rows; rows++) {
        float *x = make_rows(*rows, s->k, false);
        CUdeviceptr dx = up(d, x, (size_t)*rows * (size_t)s->k * 4),
                    y = up(d, NULL, (size_t)*rows * (size_t)(s->n + 3) * 4);
        ek_cuda_acts device = {0};
        if (s->bits) {
            size_t row = ek_cuda_acts_plan(&device, s->k, s->a_group);
            device.q = up(d, NULL, row * (size_t)*rows);
            device_quantize(d, &device, dx, *rows);
        }
        product p;
        prepare(&p, d, &l, weights, s->bits ? &device : NULL, dx, *rows, y);
        p.copies = copies;
        double us = time_us(d, queue, &p, *rows > 128 ? 2 : (int)copies);
        if (*rows > 128) printf(" %d rows %.0f us %.1f T", *rows, us, (double)*rows * s->n * s->k / us * 1e-6);
        else printf(" %d: %.1f us %.0f %%", *rows, us, (double)l.bytes / us * 1e-3 / stream_gbs * 100);
        fflush(stdout);
        drop(d, dx), drop(d, y), drop(d, device.q), finish(d, &p);
        free(x);
    }
    printf("\n");
    drop(d, weights);
    free(packed), free(w.data);
}

enum { AMONG = 2 };
static product among[AMONG];
static CUdeviceptr among_memory[AMONG][4];

void open_among(dev *d, int rows)
{
    shape s[AMONG] = {{6144, 1536, 4, 64, 64, 1, EK_BF16, true}, {1536, 6144, 4, 64, 64, 1, EK_BF16, true}};
    for (int i = 0; i < AMONG; i++) {
        const size_t copies = 30;
        ek_linear w;
        ek_cuda_linear l;
        open_weights(&w, &s[i], 0);
        must(ek_cuda_linear_plan(&l, &w));
        uint8_t *packed = malloc(l.bytes);
        device_pack(&l, &w, packed, 0, 1);
        ek_cuda_acts acts = {0};
        const size_t row = ek_cuda_acts_plan(&acts, s[i].k, s[i].a_group);
        float *x = make_rows(rows, s[i].k, false);
        CUdeviceptr *const at = among_memory[i];
        at[0] = up(d, NULL, copies * l.bytes), at[1] = up(d, x, (size_t)rows * (size_t)s[i].k * 4);
        at[2] = acts.q = up(d, NULL, row * (size_t)rows), at[3] = up(d, NULL, (size_t)rows * (size_t)(s[i].n + 3) * 4);
        for (size_t c = 0; c < copies; c++) must(ek_cuda_upload(d->c, at[0] + c * l.bytes, packed, l.bytes));
        device_quantize(d, &acts, at[1], rows);
        must(ek_cuda_sync(d->c));
        prepare(&among[i], d, &l, at[0], &acts, at[1], rows, at[3]);
        among[i].copies = copies;
        free(packed), free(w.data), free(x);
    }
}

void queue_among(int i)
{
    for (int p = 0; p < AMONG; p++) queue(&among[p], i);
}

void close_among(dev *d)
{
    for (int i = 0; i < AMONG; i++) {
        for (int m = 0; m < 4; m++) drop(d, among_memory[i][m]);
        finish(d, &among[i]);
    }
}

/* One kernel against the others: what ek_cuda_product_plan decides. */
void speed_choice(dev *d)
{
    static const int rows[][8] = {[BY_UNITS] = {1, 2, 4, 8, 16, 32, 64, 0},
                                  [BY_TILES] = {8, 16, 24, 32, 48, 64, 128, 0},
                                  [BY_WARPS] = {1, 2, 4, 8, 16, 32, 64, 0},
                                  [BY_WIDE] = {16, 64, 128, 512, 2048, 0},
                                  [BY_MID] = {8, 16, 24, 32, 48, 64, 128, 0}};
    static const struct {
        int n, k;
    } c[] = {{6144, 1536},  {1536, 6144},  {1536, 2048},  {256, 1536},  {1536, 256},  {10240, 2560},
             {2560, 10240}, {21504, 5376}, {5376, 21504}, {2816, 2112}, {8192, 2816}, {262144, 1536}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        for (int limbs = 1; limbs <= 2; limbs++) {
            shape s = {c[i].n, c[i].k, 4, 64, 64, limbs, EK_BF16, true};
            for (by_kernel = 0; by_kernel <= BY_MID; by_kernel++)
                if (by_kernel != BY_WIDE || ek_cuda_chip_of(d->c)->wgmma) time_product(d, &s, rows[by_kernel]);
        }
    by_kernel = -1;
}

/* Few rows of GGUF's types, by the kernels that the plan knows; quick: of q4_0. */
void speed_planes(dev *d)
{
    static const int few_rows[] = {1, 4, 8, 16, 32, 64, 0}, all[] = {16, 32, 64, 128, 2048, 0},
                     mid[] = {8, 16, 32, 64, 128, 0};
    static const struct {
        const char *type;
        int n, k, limbs;
    } c[] = {{"q4_0", 2048, 1536, 1},  {"q4_0", 1536, 2048, 1},  {"q4_0", 6144, 1536, 1},  {"q4_0", 1536, 6144, 1},
             {"q4_0", 10240, 2560, 1}, {"q4_0", 21504, 5376, 1}, {"q4_0", 5376, 21504, 1}, {"q4_k", 6144, 1536, 1},
             {"q4_k", 1536, 6144, 1},  {"q4_k", 21504, 5376, 1}, {"q6_k", 256, 1536, 2},   {"q6_k", 1536, 6144, 1},
             {"q6_k", 5376, 21504, 1}, {"q8_0", 1536, 256, 2},   {"q8_0", 256, 1536, 2},   {"q8_0", 6144, 1536, 2},
             {"q8_0", 5376, 21504, 2}, {"q4_0", 256, 1536, 2},   {"q6_k", 262144, 1536, 2}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        for (int by = 0; by < 7; by++) {
            static const int kernel[] = {BY_UNITS, BY_TILES, BY_WARPS, BY_MID, BY_WIDE, BY_SHORT, -1};
            const bool wgmma = by >= 3 && by <= 5;
            if ((d->quick || wgmma) && strcmp(c[i].type, "q4_0")) continue;
            if (d->quick && by < 2) continue;
            if ((kernel[by] == BY_WIDE || kernel[by] == BY_SHORT) && !ek_cuda_chip_of(d->c)->wgmma) continue;
            shape s = {.n = c[i].n, .k = c[i].k, .limbs = c[i].limbs, .scales = EK_F16};
            gguf = c[i].type, by_kernel = kernel[by];
            time_product(d, &s, by == 0 || by == 2 ? few_rows : by == 3 ? mid : all);
        }
    gguf = NULL, by_kernel = -1;
}

/* Form F: towers' matrices and those of decoders, by both kernels. */
void speed_floats(dev *d)
{
    static const int few[] = {1, 2, 4, 8, 16, 32, 0}, many[] = {16, 32, 64, 128, 256, 512, 2520, 0},
                     prompt[] = {512, 2048, 0};
    static const struct {
        int n, k;
    } c[] = {{768, 768},    {3072, 768},  {768, 3072},  {1152, 1152}, {4304, 1152},
             {1152, 4304},  {2048, 1536}, {6144, 1536}, {1536, 6144}, {21504, 5376},
             {5376, 21504}, {8192, 5376}, {5376, 8192}, {2816, 2112}, {262144, 2560}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        shape s = {c[i].n, c[i].k, 0, 0, 0, 0, EK_BF16, false};
        by_kernel = BY_FEW_FLOATS, time_product(d, &s, few);
        by_kernel = BY_MANY_FLOATS, time_product(d, &s, many);
    }
    by_kernel = BY_FEW_FLOATS;
    shape one = {6144, 1536, 0, 0, 0, 0, EK_BF16, false}, wide = {3072, 768, 0, 0, 0, 0, EK_F32, false};
    time_product(d, &one, prompt);
    by_kernel = BY_MANY_FLOATS;
    time_product(d, &wide, many + 6);
    by_kernel = -1;
}

void speed_linear(dev *d)
{
    static const int decode[] = {1, 2, 4, 8, 16, 32, 0}, all[] = {1, 4, 8, 16, 32, 2048, 0};
    static const struct {
        int n, k;
    } c[] = {{6144, 1536}, {1536, 6144}, {2048, 1536}, {10240, 2560}, {21504, 5376}, {5376, 21504}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        for (int limbs = 1; limbs <= 2; limbs++) {
            shape s = {c[i].n, c[i].k, 4, 64, 64, limbs, EK_BF16, true};
            time_product(d, &s, all);
        }
    shape head = {262144, 1536, 4, 64, 64, 2, EK_BF16, true}, eight = {6144, 1536, 8, 64, 64, 2, EK_BF16, true},
          router = {128, 2816, 0, 0, 0, 0, EK_BF16, false}, per_layer = {8960, 1536, 0, 0, 0, 0, EK_BF16, false};
    time_product(d, &head, decode);
    time_product(d, &eight, all);
    time_product(d, &router, decode);
    time_product(d, &per_layer, decode);
}
