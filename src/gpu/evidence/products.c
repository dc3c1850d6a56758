/* Products of each kind of matrix that a model has, with as many inputs: two panels of random codes and hard scales. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "cuda/product/product.h"
#include "gpu/evidence/evidence.h"
#include "gpu/recipe/sections.h"
#include "ops/linear/planes.h"

enum { PANELS = 2, OUTPUTS = PANELS * EK_PANEL, ROWS = 5, MANY = 16 };

/* --- which there are */

static bool alike(const ek_linear *a, const ek_linear *b)
{
    return a->form == b->form && a->k == b->k && a->group == b->group && a->a_group == b->a_group &&
           a->bits == b->bits && a->zero == b->zero && a->limbs == b->limbs && a->biased == b->biased &&
           a->scale_dtype == b->scale_dtype && a->block == b->block && a->scale == b->scale && a->book == b->book;
}

static void add(const ek_linear **out, int *n, const ek_linear *w)
{
    if (!w || !w->n) return;
    for (int i = 0; i < *n; i++)
        if (alike(out[i], w)) return;
    if (*n < EK_TRIAL_MATRICES) out[(*n)++] = w;
}

void ek_trial_matrices(const ek_linear *out[EK_TRIAL_MATRICES], int *n, const ek_model *m)
{
    *n = 0;
    add(out, n, ek_weights_head(&m->w));
    add(out, n, &m->w.per_layer_head), add(out, n, &m->w.per_layer_tail);
    for (int i = 0; i < m->config.n_layers; i++) {
        const ek_layer_weights *l = &m->w.layer[i];
        const ek_linear *const all[] = {&l->q,          &l->k,
                                        &l->v,          &l->o,
                                        &l->gate,       &l->up,
                                        &l->down,       &l->per_layer_gate,
                                        &l->router,     &l->per_layer_proj,
                                        l->expert_gate, l->expert_up,
                                        l->expert_down};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++) add(out, n, all[j]);
    }
}

/* --- their weights */

/* Of ordinary size, small down to where a binary16 is denormal, and zeros. */
static float scale_at(uint64_t i)
{
    static const float some[] = {1, -0.5f, 0x1.8p-3f, 0x1.004p-7f, -0x1.ff8p-12f, 0x1p-14f, 0x1.4p-20f, 0x1p-24f, 0, 2};
    return some[ek_mix64(i) % (sizeof some / sizeof *some)];
}

static void put(uint8_t *to, int i, ek_dtype type, float x)
{
    const ek_f16 h = ek_f32_f16(x);
    const ek_bf16 b = ek_f32_bf16(x);
    if (type == EK_F32) memcpy(to + 4 * i, &x, 4);
    else memcpy(to + 2 * i, type == EK_F16 ? &h : &b, 2);
}

static void fill_block(const ek_linear *w, uint8_t *block, uint64_t seed)
{
    const int halves = EK_PANEL * (w->biased ? 2 : 1);
    if (w->scale == EK_SCALE_E8M0) {
        for (int i = 0; i < EK_PANEL; i++) block[i] = (uint8_t)(100 + ek_mix64(seed + (uint64_t)i) % 30);
    } else if (w->scale == EK_SCALE_E4M3) {
        for (size_t i = 0; i < ek_planes_scale_bytes(w); i++) block[i] &= 0xfb; /* never NaN */
    } else {
        for (int i = 0; i < halves; i++) put(block, i, EK_F16, scale_at(seed + (uint64_t)i));
    }
}

static void fill(ek_linear *w)
{
    const ek_dtype type = w->form == EK_W_F32 ? EK_F32 : w->form == EK_W_F16 ? EK_F16 : EK_BF16;
    for (size_t i = 0; i < w->bytes; i++) w->data[i] = (uint8_t)ek_mix64(i + 77);
    for (int p = 0; p < PANELS; p++) {
        uint8_t *panel = w->data + (size_t)p * w->panel_bytes;
        if (w->form == EK_W_PLANES) {
            const size_t block = ek_planes_block_bytes(w);
            for (int b = 0; b < w->k / w->block; b++) fill_block(w, panel + (size_t)b * block, (uint64_t)(b * 64 + p));
            if (w->scale == EK_SCALE_E4M3)
                for (int i = 0; i < EK_PANEL; i++) put(panel + w->panel_bytes - 64, i, EK_F32, 0.25f + (float)i / 64);
        } else if (ek_wform_is_q(w->form)) {
            for (int g = 0; g < w->k / w->group; g++)
                for (int i = 0; i < EK_PANEL * (w->biased ? 2 : 1); i++)
                    put(panel + (size_t)g * ek_linear_group_bytes(w) + ek_linear_code_bytes(w), i, w->scale_dtype,
                        scale_at((uint64_t)(g * 64 + i)));
        } else {
            for (int i = 0; i < w->k * EK_PANEL; i++)
                put(panel, i, type, scale_at((uint64_t)(p + i)) * (1 + (float)(i % 37) / 64));
        }
    }
}

/* --- the comparison */

/* Rows of the matrix at `to`, as embeddings are looked up in it. */
static ek_err prove_embed(ek_trial *t, const ek_linear *w, const ek_cuda_linear *l, CUdeviceptr to)
{
    static const int32_t id[ROWS] = {3, 31, 0, 17, 16};
    const float factor = ek_config_embed_scale(&t->m->config, t->m->config.hidden_size);
    const size_t all = (size_t)(ROWS * w->k);
    float *const want = ek_alloc(sizeof *want * (all + 64));
    for (int r = 0; r < ROWS; r++) ek_linear_row(w, id[r], want + (size_t)r * (size_t)w->k);
    for (size_t i = 0; i < all; i++) want[i] = want[i] * factor;
    const ek_gpu_matrix matrix = {.l = *l, .at = to};
    ek_cuda_embed_args a = ek_gpu_rows_of(&matrix);
    a.id = ek_trial_up(t, id, sizeof id), a.h = ek_trial_up(t, NULL, sizeof *want * all);
    a.ldh = w->k, a.factor = factor, a.n = w->k;
    ek_gpu_launch(t->g, "ek_embed", (ek_cuda_grid){.x = (unsigned)(w->k + 255) / 256, .y = ROWS, .threads = 256}, &a);
    const ek_err err = ek_trial_floats(t, "ek_embed", a.h, want, all);
    free(want);
    return err;
}

static ek_err run(ek_trial *t, const ek_linear *w, const float *x, const float *want)
{
    ek_gpu *const g = t->g;
    ek_cuda_linear l;
    EK_TRY(ek_cuda_linear_plan(&l, w));
    t->used = 0;
    const CUdeviceptr to = ek_trial_up(t, NULL, l.bytes), through = ek_trial_up(t, NULL, w->bytes),
                      in = ek_trial_up(t, x, sizeof *x * (size_t)(ROWS * w->k));
    EK_TRY(g->err);
    EK_TRY(ek_gpu_upload_matrix(g, &l, w, to, 0, (ek_gpu_buffer){through, w->bytes}));
    EK_TRY(prove_embed(t, w, &l, to));
    ek_cuda_linear_args a = {.f = in, .ldf = w->k, .ldy = OUTPUTS, .rows = ROWS};
    if (l.units) {
        const size_t row = ek_cuda_acts_plan(&a.x, w->k, l.a_group);
        a.x.q = ek_trial_up(t, NULL, row * ROWS);
        const ek_cuda_quantize_args q = {.to = a.x, .x = in, .ldx = w->k};
        const unsigned blocks = (unsigned)(w->k + l.a_group * 8 - 1) / (unsigned)(l.a_group * 8);
        ek_gpu_launch(g, "ek_quantize", (ek_cuda_grid){.x = blocks, .y = ROWS, .threads = 256}, &q);
    }
    ek_cuda_linear_args_of(&a, &l, to);
    static const int rows[] = {ROWS, 1, MANY}; /* of a batch, a reply, a prompt, whose kernels may be others */
    ek_cuda_product before = {.name = ""};
    for (int i = 0; i < 3; i++) {
        const ek_cuda_product p = ek_cuda_product_plan(&l, rows[i], ek_cuda_chip_of(g->c), 0);
        if (!strcmp(p.name, before.name)) continue;
        before = p;
        a.rows = rows[i] < ROWS ? rows[i] : ROWS, a.y = ek_trial_up(t, NULL, sizeof *want * ROWS * OUTPUTS);
        ek_gpu_launch(g, p.name, p.grid, &a);
        EK_TRY(g->err);
        EK_TRY(ek_trial_floats(t, p.name, a.y, want, (size_t)(a.rows * OUTPUTS)));
    }
    return EK_OK;
}

static ek_err prove(ek_trial *t, const ek_linear *of)
{
    ek_linear_ops ops;
    ek_linear w = *of;
    ek_acts a;
    ek_linear_init(&ops, 0);
    w.n = OUTPUTS, w.n_panels = PANELS, w.parts = NULL, w.bytes = PANELS * w.panel_bytes, w.run = ops.run[w.form];
    const size_t acts = ek_acts_bytes(ROWS, w.k), floats = sizeof(float) * (size_t)(ROWS * w.k);
    uint8_t *const mem = ek_alloc_big(w.bytes + 64 + acts + floats + sizeof(float) * ROWS * OUTPUTS);
    if (!mem) return EK_ENOMEM;
    w.data = mem;
    float *const x = (float *)(void *)(mem + (w.bytes + 63) / 64 * 64 + acts), *const want = x + ROWS * w.k;
    fill(&w);
    ek_trial_hard(x, (size_t)(ROWS * w.k), (uint64_t)w.k, 6);
    ek_acts_bind(&a, mem + (w.bytes + 63) / 64 * 64, x, w.k, ROWS, w.k);
    ek_linear_forward(&ops, NULL, &w, &a, want, OUTPUTS);
    const ek_err err = run(t, &w, x, want);
    ek_free_big(mem, of->panel_bytes * PANELS + 64 + acts + floats + sizeof(float) * ROWS * OUTPUTS);
    return err;
}

ek_err ek_trial_products(ek_trial *t)
{
    const ek_linear *all[EK_TRIAL_MATRICES];
    int n;
    ek_trial_matrices(all, &n, t->m);
    for (int i = 0; i < n; i++) EK_TRY(prove(t, all[i]));
    return EK_OK;
}
