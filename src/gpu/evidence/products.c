/* Compares products of each kind of matrix in a model, with the model's number of inputs: two panels of random codes
 * and hard scales. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "cuda/product/product.h"
#include "gpu/evidence/evidence.h"
#include "gpu/recipe/sections.h"
#include "ops/linear/planes.h"

enum {
    PANELS = EK_TRIAL_PANELS,
    OUTPUTS = EK_TRIAL_OUTPUTS,
    ROWS = 16,
    FEW = 5,
    MAX_ROWS = 256, /* more rows have the same kernels (gpu/tune.c) */
    IDS = 5,
    MAX_NAMES = 8
};

/* --- the kinds */

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

void ek_trial_matrices(const ek_linear *out[EK_TRIAL_MATRICES], int *n, const ek_model *m, bool experts)
{
    *n = 0;
    for (int i = 0; i < m->config.n_layers && experts; i++) {
        const ek_layer_weights *l = &m->w.layer[i];
        add(out, n, l->expert_gate), add(out, n, l->expert_up), add(out, n, l->expert_down);
    }
    if (experts) return;
    add(out, n, ek_weights_head(&m->w)), add(out, n, &m->w.embed);
    add(out, n, &m->w.per_layer_head), add(out, n, &m->w.per_layer_tail);
    add(out, n, &m->w.pre_projection), add(out, n, &m->w.post_projection), add(out, n, &m->w.centroids);
    for (int i = 0; i < m->config.n_layers; i++) {
        const ek_layer_weights *l = &m->w.layer[i];
        const ek_linear *const all[] = {
            &l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &l->per_layer_gate, &l->router, &l->per_layer_proj};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++) add(out, n, all[j]);
    }
}

/* --- their weights */

/* Scales of ordinary size, scales that are denormal as binary16, and zeros. */
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

static void fill(ek_linear *w, uint64_t seed)
{
    const ek_dtype type = w->form == EK_W_F32 ? EK_F32 : w->form == EK_W_F16 ? EK_F16 : EK_BF16;
    for (size_t i = 0; i < w->bytes; i++) w->data[i] = (uint8_t)ek_mix64(i + 77 + (seed << 40));
    for (int p = 0; p < PANELS; p++) {
        uint8_t *panel = w->data + (size_t)p * w->panel_bytes;
        if (w->form == EK_W_PLANES) {
            const size_t block = ek_planes_block_bytes(w);
            for (int b = 0; b < w->k / w->block; b++)
                fill_block(w, panel + (size_t)b * block, (uint64_t)(b * 64 + p) + seed);
            if (w->scale == EK_SCALE_E4M3)
                for (int i = 0; i < EK_PANEL; i++) put(panel + w->panel_bytes - 64, i, EK_F32, 0.25f + (float)i / 64);
        } else if (ek_wform_is_q(w->form)) {
            for (int g = 0; g < w->k / w->group; g++)
                for (int i = 0; i < EK_PANEL * (w->biased ? 2 : 1); i++)
                    put(panel + (size_t)g * ek_linear_group_bytes(w) + ek_linear_code_bytes(w), i, w->scale_dtype,
                        scale_at((uint64_t)(g * 64 + i) + seed));
        } else {
            for (int i = 0; i < w->k * EK_PANEL; i++)
                put(panel, i, type, scale_at((uint64_t)(p + i) + seed) * (1 + (float)(i % 37) / 64));
        }
    }
}

ek_err ek_trial_matrix(ek_linear *w, const ek_linear *of, uint64_t seed)
{
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    *w = *of;
    w->n = OUTPUTS, w->n_panels = PANELS, w->parts = NULL, w->bytes = PANELS * w->panel_bytes;
    w->run = ops.run[w->form];
    w->data = ek_alloc_big(w->bytes);
    if (!w->data) return EK_ENOMEM;
    fill(w, seed);
    return EK_OK;
}

void ek_trial_drop(ek_linear *w)
{
    ek_free_big(w->data, w->bytes);
}

ek_err ek_trial_put_matrix(ek_trial *t, const ek_cuda_linear *l, const ek_linear *w, CUdeviceptr to)
{
    const CUdeviceptr through = ek_trial_up(t, NULL, w->bytes);
    EK_TRY(t->g->err);
    return ek_gpu_upload_matrix(t->g, l, w, to, 0, (ek_gpu_buffer){through, w->bytes});
}

/* --- the comparison */

void ek_trial_expect(float *y, const ek_linear *w, const float *x, int rows)
{
    ek_linear_ops ops;
    ek_acts a;
    ek_linear_init(&ops, 0);
    const size_t bytes = ek_acts_bytes(rows, w->k) + 64;
    uint8_t *const mem = ek_alloc(bytes + 64);
    ek_acts_bind(&a, mem + (64 - (uintptr_t)mem % 64) % 64, x, w->k, rows, w->k);
    ek_linear_forward(&ops, NULL, w, &a, y, OUTPUTS);
    free(mem);
}

ek_cuda_linear_args ek_trial_inputs(ek_trial *t, const ek_cuda_linear *l, const float *x, int rows)
{
    ek_cuda_linear_args a = {.ldf = l->k, .ldy = OUTPUTS, .rows = rows};
    a.f = ek_trial_up(t, x, sizeof *x * (size_t)(rows * l->k));
    if (!l->units) return a;
    a.x = ek_trial_acts(t, l->k, l->a_group, rows);
    const ek_cuda_quantize_args q = {.to = a.x, .x = a.f, .ldx = l->k};
    const unsigned blocks = (unsigned)(l->k + l->a_group * 8 - 1) / (unsigned)(l->a_group * 8);
    ek_gpu_launch(t->g, "ek_quantize", (ek_cuda_grid){.x = blocks, .y = (unsigned)rows, .threads = 256}, &q);
    return a;
}

/* Compares embedding lookups in the matrix at `to`: by numbers, by a drawn token, and of a row that is a vector
 * itself. */
static ek_err prove_embed(ek_trial *t, const ek_linear *w, const ek_cuda_linear *l, CUdeviceptr to)
{
    static const int32_t id[IDS] = {3, 31, 0, EK_CUDA_DRAWN - 1, -1}, drawn[] = {7, 16}, row[IDS - 1] = {3, 31, 0, 16};
    const float factor = ek_config_embed_scale(&t->m->config, t->m->config.hidden_size);
    const size_t all = (size_t)(IDS * w->k), some = (size_t)((IDS - 1) * w->k);
    float *const want = ek_trial_hard(all, 15, 3);
    const ek_gpu_matrix matrix = {.l = *l, .at = to};
    ek_cuda_embed_args a = ek_gpu_rows_of(&matrix);
    a.h = ek_trial_up(t, want, sizeof *want * all);
    for (int r = 0; r < IDS - 1; r++) ek_linear_row(w, row[r], want + (size_t)r * (size_t)w->k);
    for (size_t i = 0; i < some; i++) want[i] = want[i] * factor;
    a.id = ek_trial_up(t, id, sizeof id), a.token = ek_trial_up(t, drawn, sizeof drawn);
    a.ldh = w->k, a.factor = factor, a.n = w->k;
    ek_gpu_launch(t->g, "ek_embed", (ek_cuda_grid){.x = (unsigned)(w->k + 255) / 256, .y = IDS, .threads = 256}, &a);
    const ek_err err = ek_trial_floats(t, "ek_embed", a.h, want, all);
    free(want);
    return err;
}

/* Adds the kernel that computes this many rows, if it is new. */
static bool add_kernel(ek_cuda_product seen[MAX_NAMES], int *n, const ek_trial *t, const ek_cuda_linear *l, int rows)
{
    const ek_cuda_product p = ek_cuda_product_plan(l, rows, ek_cuda_chip_of(t->g->c), 0);
    for (int i = 0; i < *n; i++)
        if (!strcmp(p.name, seen[i].name)) return false;
    EK_ASSERT(*n < MAX_NAMES);
    seen[(*n)++] = p;
    return true;
}

/* Compares every kernel that any number of rows uses: of a reply, a batch, and a prompt. */
static ek_err prove_rows(ek_trial *t, const ek_cuda_linear *l, ek_cuda_linear_args a, const float *want)
{
    ek_cuda_product seen[MAX_NAMES];
    for (int i = 1, n = 0; i <= MAX_ROWS; i++) {
        const int rows = i <= FEW ? FEW + 1 - i : i; /* the largest number first: a tile and more */
        if (!add_kernel(seen, &n, t, l, rows)) continue;
        a.rows = rows < ROWS ? rows : ROWS, a.y = ek_trial_up(t, NULL, sizeof *want * ROWS * OUTPUTS);
        ek_gpu_launch(t->g, seen[n - 1].name, seen[n - 1].grid, &a);
        EK_TRY(t->g->err);
        EK_TRY(ek_trial_floats(t, seen[n - 1].name, a.y, want, (size_t)(a.rows * OUTPUTS)));
    }
    return EK_OK;
}

static ek_err run(ek_trial *t, const ek_linear *w, const float *x, const float *want)
{
    ek_cuda_linear l;
    EK_TRY(ek_cuda_linear_plan(&l, w));
    t->used = 0;
    const CUdeviceptr to = ek_trial_up(t, NULL, l.bytes);
    EK_TRY(ek_trial_put_matrix(t, &l, w, to));
    EK_TRY(prove_embed(t, w, &l, to));
    ek_cuda_linear_args a = ek_trial_inputs(t, &l, x, ROWS);
    ek_cuda_linear_args_of(&a, &l, to);
    return prove_rows(t, &l, a, want);
}

static ek_err prove(ek_trial *t, const ek_linear *of)
{
    ek_linear w;
    float want[ROWS * OUTPUTS];
    EK_TRY(ek_trial_matrix(&w, of, 0));
    float *const x = ek_trial_hard((size_t)(ROWS * w.k), (uint64_t)w.k, 6);
    ek_trial_expect(want, &w, x, ROWS);
    const ek_err err = run(t, &w, x, want);
    ek_trial_drop(&w);
    free(x);
    return err;
}

ek_err ek_trial_products(ek_trial *t)
{
    const ek_linear *all[EK_TRIAL_MATRICES];
    int n;
    ek_trial_matrices(all, &n, t->m, false);
    for (int i = 0; i < n; i++) EK_TRY(prove(t, all[i]));
    return EK_OK;
}
