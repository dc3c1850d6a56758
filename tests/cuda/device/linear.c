/* Quantised rows byte by byte, and products of every form, number of limbs and group for few and many rows
 * against the scalar definition of ops/linear/linear.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/device_pack.h"
#include "base/hash/rng.h"
#include "cuda/product/product.h"
#include "linear.h"
#include "ops/linear/planes.h"

const char *gguf;

static void put(uint8_t *at, size_t i, ek_dtype t, float f)
{
    ek_bf16 b = ek_f32_bf16(f);
    ek_f16 h = ek_f32_f16(f);
    if (t == EK_F32) memcpy(at + i * 4, &f, 4);
    else memcpy(at + i * 2, t == EK_BF16 ? &b : &h, 2);
}

/* Random codes and sub-scales, plain scales of both signs. */
static void open_planes(ek_linear *w, shape *s, uint64_t seed)
{
    must(ek_linear_plan(w, 0, s->n, s->k, ek_weight_type_named(gguf)));
    must(ek_linear_set_acts(w, (ek_act_form){s->limbs, w->a_group}));
    s->bits = w->bits, s->group = w->group, s->a_group = w->a_group, s->biased = w->biased;
    w->data = aligned_alloc(64, w->bytes);
    for (size_t i = 0; i < w->bytes; i++) w->data[i] = (uint8_t)ek_mix64(i + seed);
    const size_t step = ek_planes_block_bytes(w), panels = (size_t)w->n_panels;
    for (size_t p = 0; p < panels; p++)
        for (size_t b = 0; b < (size_t)(w->k / w->block); b++) {
            uint8_t *at = w->data + p * w->panel_bytes + b * step;
            for (size_t i = 0; i < (w->biased ? 2 : 1) * (size_t)EK_PANEL; i++) {
                if (w->scale == EK_SCALE_E4M3) break;
                if (w->scale == EK_SCALE_E8M0) at[i] = (uint8_t)(i % 5 ? 120 + at[i] % 8 : at[i] % 3);
                else put(at, i, EK_F16, 0.01f * uniform(6, (p * 1000 + b) * 32 + i));
            }
        }
    if (w->scale != EK_SCALE_E4M3) return; /* bytes of all kinds, and factors whose products round */
    for (size_t p = 0; p < panels; p++)
        for (size_t o = 0; o < EK_PANEL; o++)
            put(w->data + (p + 1) * w->panel_bytes - EK_PANEL * 4, o, EK_F32, 0.3f * uniform(8, p * EK_PANEL + o));
}

void open_weights(ek_linear *w, shape *s, uint64_t seed)
{
    if (gguf) {
        open_planes(w, s, seed);
        return;
    }
    const ek_weight_type *type = NULL;
    if (s->bits) must(ek_weight_type_affine(&type, s->bits, s->group, s->scales, s->biased));
    else type = ek_weight_type_float(s->scales);
    must(ek_linear_plan(w, 0, s->n, s->k, type));
    if (s->bits) must(ek_linear_set_acts(w, (ek_act_form){s->limbs, s->a_group}));
    w->data = aligned_alloc(64, w->bytes);
    for (size_t i = 0; i + 8 <= w->bytes; i += 8) {
        uint64_t r = ek_mix64(i + seed);
        memcpy(w->data + i, &r, 8);
    }
    if (!s->bits) {
        size_t size = ek_dtype_size(s->scales);
        for (size_t i = 0; i < w->bytes / size; i++) put(w->data, i, s->scales, uniform(5, i));
        return;
    }
    size_t step = ek_linear_group_bytes(w), groups = w->bytes / step;
    for (size_t g = 0; g < groups; g++)
        for (size_t o = 0; o < EK_PANEL; o++) { /* both signs */
            uint8_t *at = w->data + g * step + ek_linear_code_bytes(w);
            float scale = 0.01f * uniform(6, g * EK_PANEL + o);
            put(at, o, w->scale_dtype, scale);
            if (s->biased)
                put(at, EK_PANEL + o, w->scale_dtype, -scale * (float)w->zero * (1 + 0.3f * uniform(7, g * 16 + o)));
        }
}

void quantize_both(dev *d, ek_acts *acts, const ek_linear *w)
{
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    ek_acts_quantize_as(&ops, d->pool, acts, (ek_act_form){2, w->a_group});
}

float *make_rows(int rows, int k, bool odd)
{
    float *x = malloc((size_t)rows * (size_t)k * 4);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < k; i++) {
            size_t at = (size_t)r * (size_t)k + (size_t)i;
            float u = uniform(9, at);
            x[at] = i % 97 == r % 97 ? 30 * u : u;
            if (i / 64 % 7 == 3 && r % 3 == 1) x[at] = 0;
            if (i / 64 % 7 == 5 && r % 4 == 1) x[at] = u * 0x1p-110f;
            if (i / 64 % 7 == 6 && r % 4 == 3) x[at] = u * 0x1p-60f; /* chains may be denormal */
            if (i / 32 % 9 == 2 && r % 4 == 2) x[at] = i % 2 ? 1.5f : -2.5f;
            if (odd && i / 64 % 5 == 1 && r == 0 && i % 64 == 9) x[at] = INFINITY;
            if (odd && i / 64 % 5 == 2 && r == 0 && i % 64 == 63) x[at] = NAN;
        }
    return x;
}

void device_quantize(dev *d, const ek_cuda_acts *to, CUdeviceptr x, int rows)
{
    ek_cuda_kernel kernel = find(d, "ek_quantize", 0);
    ek_cuda_quantize_args a = {.to = *to, .x = x, .ldx = to->k};
    int groups = (to->k + to->a_group - 1) / to->a_group;
    launch(d, &kernel,
           (ek_cuda_grid){.x = (unsigned)(groups + 7) / 8, .y = (unsigned)rows, .threads = 256, .overlap = true}, &a);
}

void compare_rows(dev *d, const ek_acts *want, const ek_cuda_acts *acts, int rows, const char *name)
{
    uint8_t *mem = down(d, acts->q, (size_t)acts->ldq * (size_t)rows);
    for (int r = 0; r < rows; r++) {
        const int8_t *record = ek_acts_record(want, r);
        const uint8_t *got = mem + (size_t)r * (size_t)acts->ldq;
        const size_t k = (size_t)acts->k, groups = k / (size_t)acts->a_group;
        uint8_t *w = malloc(2 * k + groups * 16), *g = malloc(2 * k + groups * 16);
        memcpy(w, record, k), memcpy(w + k, record + want->low, k);
        memcpy(g, got, k), memcpy(g + k, got + acts->low, k);
        for (size_t i = 0; i < groups; i++)
            for (int limbs = 1; limbs <= 2; limbs++) {
                const ek_act_group *one = &ek_acts_groups(want, r, limbs)[i];
                uint8_t *to = w + 2 * k + (i * 2 + (size_t)limbs - 1) * 8;
                memcpy(to, &one->sx, 4), memcpy(to + 4, &one->sum, 4);
                memcpy(g + 2 * k + (i * 2 + (size_t)limbs - 1) * 8, got + acts->groups[limbs - 1] + i * 8, 8);
            }
        same(d, w, g, 2 * k + groups * 16, false, "quantised row %d of %s", r, name);
        free(w);
    }
    free(mem);
}

enum { MANY_ROWS = 64 }; /* which tiles of many rows compute */
int by_kernel = -1;

static ek_cuda_product plan_by(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, family by)
{
    const ek_cuda_chip many = ek_cuda_chip_like(chip->features, 132),
                       other = ek_cuda_chip_like(chip->matrices ? EK_CUDA_PLAIN : EK_CUDA_PLAIN_MATRICES, 1);
    double us;
    switch (by) {
    case BY_UNITS: return ek_cuda_units_plan(l, rows, 0, 0, chip);
    case BY_TILES: return ek_cuda_tile_plan(l, rows, chip, 0, &us);
    case BY_WIDE: return ek_cuda_wide_plan(l, rows, 0, 1, chip);
    case BY_SHORT: return ek_cuda_wide_short_plan(l, rows, chip);
    case BY_FEW_FLOATS: return ek_cuda_floats_plan_few(l, rows, chip, (size_t)1 << 30, &us);
    case BY_MANY_FLOATS: return ek_cuda_floats_plan_tiles(l, rows, chip, (size_t)1 << 30, &us);
    case BY_MANY_PARTS: return ek_cuda_floats_plan_tiles(l, rows, &many, (size_t)1 << 30, &us);
    case BY_OTHER: return ek_cuda_product_plan(l, rows, &other, 0);
    case BY_MID: return ek_cuda_mid_plan(l, rows, EK_CUDA_GATE_NONE, chip, (size_t)1 << 30, &us);
    default: return ek_cuda_warp_plan(l, rows, 0, EK_CUDA_GATE_NONE, chip);
    }
}

void prepare(product *p, dev *d, const ek_cuda_linear *l, CUdeviceptr weights, const ek_cuda_acts *acts, CUdeviceptr x,
             int rows, CUdeviceptr y)
{
    *p = (product){.d = d,
                   .l = *l,
                   .plan = ek_cuda_product_plan(l, rows, ek_cuda_chip_of(d->c), (size_t)1 << 30),
                   .weights = weights};
    if (by_kernel >= 0) p->plan = plan_by(l, rows, ek_cuda_chip_of(d->c), (family)by_kernel);
    p->a = (ek_cuda_linear_args){
        .f = x, .ldf = l->k, .y = y, .ldy = l->n + 3, .rows = rows, .pass = p->plan.pass, .levels = p->plan.levels};
    p->a.share = p->plan.share, p->a.slots = p->plan.slots;
    if (acts) p->a.x = *acts;
    ek_cuda_linear_args_of(&p->a, l, weights);
    p->a.stack = up(d, NULL, p->plan.stack);
    p->kernel = find(d, p->plan.name, p->plan.grid.shared);
    if (p->plan.operand) {
        p->a.operand = up(d, NULL, p->plan.operand);
        p->r = (ek_cuda_arrange_args){.x = *acts, .operand = p->a.operand, .rows = rows};
        p->arrange = find(d, ek_cuda_arrange_name(l), 0);
    }
    if (!p->plan.parts) return;
    p->j = (ek_cuda_join_args){.y = y, .ldy = l->n + 3, .n = l->n, .rows = rows, .n_parts = p->plan.parts};
    p->j.parts = up(d, NULL, (size_t)p->plan.parts * (size_t)rows * (size_t)l->n * 4);
    p->a.y = p->j.parts, p->a.ldy = l->n, p->a.split = p->plan.split;
    p->join = find(d, "ek_product_join", 0);
}

void finish(dev *d, product *p)
{
    drop(d, p->a.stack), drop(d, p->j.parts), drop(d, p->a.operand);
}

void run_product(product *p)
{
    if (p->plan.operand) launch(p->d, &p->arrange, p->plan.arrange, &p->r);
    launch(p->d, &p->kernel, p->plan.grid, &p->a);
    if (p->plan.parts)
        launch(p->d, &p->join,
               (ek_cuda_grid){
                   .x = (unsigned)(p->l.n + 255) / 256, .y = (unsigned)p->j.rows, .threads = 256, .overlap = true},
               &p->j);
}

/* What ek_pack_planes writes. */
static void compare_planes(dev *d, const ek_cuda_linear *l, const ek_linear *w, const uint8_t *packed, const char *name)
{
    ek_cuda_pack_planes_args a;
    ek_cuda_planes_args(&a, l, w);
    CUdeviceptr from = up(d, w->data, w->bytes), to = up(d, packed, l->bytes);
    must(ek_cuda_fill(d->c, to, 0xff, l->code_bytes));
    a.from = from, a.codes = to, a.scales = to + l->code_bytes;
    ek_cuda_kernel kernel = find(d, "ek_pack_planes", 0);
    launch(d, &kernel, (ek_cuda_grid){.x = (unsigned)l->units, .y = (unsigned)l->n_panels, .threads = 32}, &a);
    same(d, packed, down(d, to, l->bytes), l->bytes, false, "panels of %s", name);
    drop(d, from), drop(d, to);
}

static bool there(dev *d, const char *kernel)
{
    ek_cuda_kernel k;
    return ek_cuda_find(d->c, &k, kernel, 0) == EK_OK;
}

static void compare(dev *d, shape *s, const int *rows, bool odd)
{
    ek_linear w;
    ek_cuda_linear l;
    ek_linear_ops ops;
    int max = 0;
    for (const int *r = rows; *r; r++) max = *r > max ? *r : max;
    char name[120];
    open_weights(&w, s, 0);
    snprintf(name, sizeof name, "%s %d bits %s group %d/%d limbs %d, %d x %d%s", gguf ? gguf : "", s->bits,
             s->scales == EK_F32 ? "f32" : "16", s->group, s->a_group, s->limbs, s->n, s->k,
             s->biased ? " biased" : "");
    ek_linear_init(&ops, 0);
    float *x = make_rows(max, s->k, odd), *want = malloc((size_t)max * (size_t)(s->n + 3) * 4);
    memset(want, 0xff, (size_t)max * (size_t)(s->n + 3) * 4);
    void *mem = aligned_alloc(64, ek_acts_bytes(max, s->k));
    ek_acts acts;
    ek_acts_bind(&acts, mem, x, s->k, max, s->k);
    quantize_both(d, &acts, &w);
    ek_linear_forward(&ops, d->pool, &w, &acts, want, s->n + 3);
    must(ek_cuda_linear_plan(&l, &w));
    uint8_t *packed = calloc(1, l.bytes);
    device_pack_for(ek_cuda_chip_of(d->c), &l, &w, packed);
    if (gguf) compare_planes(d, &l, &w, packed, name);
    CUdeviceptr weights = up(d, packed, l.bytes), dx = up(d, x, (size_t)max * (size_t)s->k * 4), q = 0;
    ek_cuda_acts device = {0};
    if (s->bits) {
        size_t row = ek_cuda_acts_plan(&device, s->k, s->a_group);
        device.q = q = up(d, NULL, row * (size_t)max);
        device_quantize(d, &device, dx, max);
        compare_rows(d, &acts, &device, max < 8 ? max : 8, name);
    }
    /* what the plan chooses, then kernels that it would not choose for all of these rows */
    const ek_cuda_chip *chip = ek_cuda_chip_of(d->c);
    int by[6] = {-1}, n_by = 1;
    if (ek_cuda_wide_fits(&l, chip)) by[n_by++] = BY_WIDE;
    if (ek_cuda_wide_short_fits(&l, chip)) by[n_by++] = BY_SHORT;
    if (ek_cuda_own_scales(&l) && !chip->plain) by[n_by++] = BY_WARPS;
    if (ek_cuda_mid_fits(&l) && !chip->plain) by[n_by++] = BY_MID;
    if (chip->plain && l.units && there(d, plan_by(&l, MANY_ROWS, chip, BY_OTHER).name)) by[n_by++] = BY_OTHER;
    if (!l.units && !chip->plain) by[n_by++] = BY_MANY_FLOATS, by[n_by++] = BY_MANY_PARTS;
    for (int i = 0; i < n_by; i++)
        for (const int *r = rows; *r; r++) {
            if (by[i] == BY_OTHER && *r < 16) continue; /* by the same as before */
            size_t bytes = (size_t)*r * (size_t)(s->n + 3) * 4;
            CUdeviceptr y = up(d, NULL, bytes);
            product p;
            by_kernel = by[i];
            prepare(&p, d, &l, weights, s->bits ? &device : NULL, dx, *r, y);
            run_product(&p);
            same(d, want, down(d, y, bytes), bytes, odd, "%s, %d rows by %s in %d parts", name, *r, p.plan.name,
                 p.plan.parts);
            drop(d, y), finish(d, &p);
        }
    by_kernel = -1;
    drop(d, weights), drop(d, dx), drop(d, q);
    free(packed), free(mem), free(want), free(x), free(w.data);
}

static const int few[] = {1, 2, 3, 4, 5, 8, 9, 16, 21, 32, 33, 100, 0}, quick[] = {1, 3, 16, 40, 0};

/* GGUF's types. */
void test_planes(dev *d)
{
    static const char *const types[] = {"q4_0",   "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4",
                                        "iq4_xs", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",   "nvfp4"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int limbs = 1; limbs <= 2; limbs++) {
            shape s = {.n = 70, .k = i < 7 ? 1376 : 1536, .limbs = limbs, .scales = EK_F16};
            if (d->quick && limbs != 1 + (int)i % 2) continue;
            gguf = types[i];
            compare(d, &s, d->quick ? quick : few, i % 3 == 0);
            gguf = NULL;
        }
    for (int limbs = 1; limbs <= 2; limbs++) /* by wgmma: whole units of 64 inputs */
        for (int i = 0; i < 2; i++) {
            shape s = {.n = 150, .k = 2240, .limbs = limbs, .scales = EK_F16};
            gguf = i ? "q8_0" : "q4_0";
            compare(d, &s, d->quick ? quick : few, limbs == 2);
            gguf = NULL;
        }
    static const int one[] = {1, 0};
    shape one_row[] = {{.n = 40, .k = 20544, .limbs = 1, .scales = EK_F16},
                       {.n = 40, .k = 2816, .limbs = 1, .scales = EK_F16},
                       {.n = 40, .k = 5376, .limbs = 2, .scales = EK_F16}};
    for (size_t i = 0; i < sizeof one_row / sizeof *one_row; i++) { /* by Vulkan: 192, 352 and 256 threads */
        gguf = i == 2 ? "q6_k" : "q4_0";
        compare(d, &one_row[i], one, i == 1);
        gguf = NULL;
    }
    static const char *const held[] = {"q4_0", "q8_0", "q4_k", "q6_k"}; /* leaves of several chunks, many panels */
    for (size_t i = 0; i < (d->quick ? 0 : sizeof held / sizeof *held); i++)
        for (int limbs = 1; limbs <= 2; limbs++) {
            shape long_rows = {.n = 40, .k = 6400, .limbs = limbs, .scales = EK_F16}, tall = long_rows;
            tall.n = 5000, tall.k = 768;
            gguf = held[i];
            compare(d, &long_rows, few, false), compare(d, &tall, few, false);
            gguf = NULL;
        }
}

void test_linear(dev *d)
{
    static const int some[] = {1, 7, 16, 70, 0}, one[] = {1, 0};
    shape one_row = {40, 20544, 4, 64, 64, 1, EK_BF16, true}; /* by Vulkan: chains in registers */
    compare(d, &one_row, one, false);
    for (int bits = 4; bits <= 8; bits += 4)
        for (int group = 32; group <= 128; group *= 2)
            for (int limbs = 1; limbs <= 2; limbs++)
                for (int variant = 0; variant < 4; variant++) {
                    shape s = {
                        70,         1408, bits, group, group == 32 ? 32 : 64, limbs, variant & 1 ? EK_F32 : EK_BF16,
                        variant < 2};
                    if (d->few && (limbs != 1 + group / 64 % 2 || variant > 1)) continue;
                    if (d->quick && variant != group / 32 % 4 && (group != 64 || variant)) continue;
                    compare(d, &s, d->quick ? quick : variant ? some : few, variant == 3);
                }
    static const ek_dtype floats[] = {EK_F32, EK_F16, EK_BF16};
    for (size_t f = 0; f < 3; f++)
        for (int k = 1; k < (d->quick ? 1100 : 22000); k = k * 5 + 3) {
            shape s = {130, k > 15000 ? 21504 : k, 0, 0, 0, 0, floats[f], false};
            if (d->quick && k > 500 && f != 1) continue; /* leaves and parts are alike in all three */
            compare(d, &s, some, false);
        }
    for (size_t f = 0; f < 3; f++) { /* towers': several tiles a block, nodes of T, NaN and infinity */
        shape s = {f == 0 ? 4304 : 768, f == 0 ? 768 : f == 1 ? 1152 : 4304, 0, 0, 0, 0, floats[f], false};
        static const int tower[] = {64, 200, 2520, 0}, small[] = {70, 0};
        if (d->quick) s.n = 300;
        if (!d->few || f == 1) compare(d, &s, d->quick ? small : tower, f == 2);
    }
    /* up to 8 rows by chunks of 512 inputs: warps that have several, halves of chunks and rests behind the last */
    static const int chunks[] = {1728, 256, 512, 768, 1536, 2112, 2816, 5376, 6144, 10240, 12288, 21504},
                     eight[] = {1, 2, 3, 4, 5, 7, 8, 0};
    for (size_t i = 0; i < (d->quick ? 1 : sizeof chunks / sizeof *chunks); i++)
        for (int limbs = 1; limbs <= 2; limbs++) {
            shape s = {280, chunks[i], 4, 64, 64, limbs, EK_BF16, true};
            compare(d, &s, eight, i % 2);
        }
    if (d->quick) return;
    static const int published[] = {704,  1536, 2048, 2560,  2816,  3840,  4096,
                                    5376, 6144, 8192, 10240, 12288, 16384, 21504};
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        for (int limbs = 1; limbs <= 2; limbs++) {
            shape s = {200, published[i], i % 3 == 2 ? 8 : 4, 64, 64, limbs, EK_BF16, true};
            compare(d, &s, few, false);
        }
    shape others[] = {{16, 64, 4, 64, 64, 1, EK_BF16, true},     {15, 96, 4, 32, 32, 2, EK_F32, false},
                      {300, 1056, 8, 32, 32, 1, EK_BF16, true},  {40, 640, 4, 64, 32, 2, EK_BF16, true},
                      {5000, 1536, 4, 64, 64, 1, EK_BF16, true}, {9000, 512, 3, 64, 64, 2, EK_BF16, true}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) compare(d, &others[i], few, false);
}
