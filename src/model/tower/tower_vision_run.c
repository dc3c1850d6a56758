/* The passes of the vision tower over a block of rows. */
#include <math.h>
#include <string.h>

#include "model/tower/tower_vision.h"

/* fn for each row of the block, counted from 0. */
static void each_row(const ek_vision_work *w, ek_tower_row_fn *fn)
{
    ek_tower_each_row(w->v->part.kernels->pool, fn, w, w->m);
}

/* ------------------------------------------------------------------ products */

static void clamp(const ek_vision_work *w, float *y, const float *x, const float bounds[2], int n)
{
    w->v->part.kernels->rows.clamp(y, x, bounds[0], bounds[1], n);
}

/* The index of the input x[] that a matrix reads: the first one with the same clamp. */
static int input_of(const ek_clipped *const *w, int i)
{
    int j = 0;
    while (memcmp(w[j]->clip.in, w[i]->clip.in, sizeof w[i]->clip.in) != 0) j++;
    return j;
}

/* Row i of x[0] is the unclamped input of n matrices; x[j] gets the row as matrix j clamps it. */
static void clamp_inputs(const ek_vision_work *w, const ek_clipped *const *m, int n, int i, int k)
{
    for (int j = n - 1; j >= 0; j--)
        if (input_of(m, j) == j && (j > 0 || ek_clips_in(&m[j]->clip)))
            clamp(w, ek_row_at(&w->x[j], i), ek_row_at(&w->x[0], i), m[j]->clip.in, k);
}

static void multiply(const ek_vision_work *w, const ek_clipped *const *m, const ek_span *y, int n, int k)
{
    const ek_tower_ops *ops = w->v->part.kernels;
    ek_acts x[EK_VISION_INPUTS];
    ek_linear_job job[EK_VISION_INPUTS] = {{0}};
    for (int i = 0; i < n; i++) {
        const int from = input_of(m, i);
        if (from == i) ek_acts_bind(&x[i], w->acts[i], w->x[i].at, w->x[i].ld, w->m, k);
        job[i] = (ek_linear_job){.w = &m[i]->w, .x = &x[from], .y = y[i].at, .ldy = y[i].ld};
    }
    ek_linear_run(&ops->linear, ops->pool, n, job);
}

static void multiply_one(const ek_vision_work *w, const ek_linear *m, const ek_span *x, void *acts, float *y,
                         ptrdiff_t ldy)
{
    ek_tower_product(w->v->part.kernels, m, x->at, x->ld, w->m, acts, y, ldy);
}

static void clamp_out(const ek_vision_work *w, const ek_clipped *m, float *y, int n)
{
    if (ek_clips_out(&m->clip)) clamp(w, y, y, m->clip.out, n);
}

/* ------------------------------------------------------------------ patches */

static void patch_row(const void *self, int i, int thread)
{
    const ek_vision_work *w = self;
    (void)thread;
    ek_picture_patches(ek_row_at(&w->x[0], i), NULL, &w->picture, EK_PATCH_TOWER, w->row + i, 1);
}

static void position_row(const void *self, int i, int thread)
{
    const ek_vision_work *w = self;
    const ek_vision *v = w->v;
    const ek_row_ops *ops = &v->part.kernels->rows;
    const int p = w->row + i;
    float *column = ek_row_at(&w->temp, 2 * thread), *line = ek_row_at(&w->temp, 2 * thread + 1);
    ek_embedding_row(&v->positions, p % w->across, 0, v->width, column);
    ek_embedding_row(&v->positions, v->n_positions + p / w->across, 0, v->width, line);
    ops->add(column, line, v->width);
    ops->add(ek_row_at(&w->h, p), column, v->width);
}

void ek_vision_embed(ek_vision_work *w)
{
    const ek_span keep = w->x[0];
    w->x[0].ld = w->v->input.k;
    each_row(w, patch_row);
    multiply_one(w, &w->v->input, &w->x[0], w->acts[0], ek_row_at(&w->h, w->row), w->h.ld);
    w->x[0] = keep;
    each_row(w, position_row);
}

/* ------------------------------------------------------------------ heads */

static const ek_vision_layer *layer_of(const ek_vision_work *w)
{
    return &w->v->layer[w->layer];
}

static void input_row(const void *self, int i, int thread)
{
    const ek_vision_work *w = self;
    (void)thread;
    const ek_vision_layer *l = layer_of(w);
    const ek_clipped *const m[] = {&l->q, &l->k, &l->v};
    w->v->part.kernels->rows.rms_norm(ek_row_at(&w->x[0], i), ek_row_at(&w->h, w->row + i), l->input_norm, w->v->width,
                                      w->v->eps);
    clamp_inputs(w, m, 3, i, w->v->width);
}

/* The first half of a head by the patch's column, the second by its line. */
static void rotate(const ek_vision_work *w, float *head, int p)
{
    const ek_row_ops *ops = &w->v->part.kernels->rows;
    const int half = w->v->head_dim / 2, n = half / 2, x = p % w->across * n, y = p / w->across * n;
    ops->rope(head, w->cos + x, w->sin + x, n, n);
    ops->rope(head + half, w->cos + y, w->sin + y, n, n);
}

/* Stores patch p's keys and values as codes, from the products' outputs. */
static void store_row(const ek_vision_work *w, int p, float *k, float *val)
{
    const ek_vision *v = w->v;
    const ek_row_ops *ops = &v->part.kernels->rows;
    const int dim = v->head_dim;
    for (int j = 0; j < v->kv_heads * dim; j += dim) {
        ops->rms_norm(k + j, k + j, layer_of(w)->k_norm, dim, v->eps);
        rotate(w, k + j, p);
        ops->rms_norm(val + j, val + j, NULL, dim, v->eps);
    }
    ek_attn_store(w->integers, &w->view, p, k, val);
}

static void head_row(const void *self, int i, int thread)
{
    const ek_vision_work *w = self;
    (void)thread;
    const ek_vision *v = w->v;
    const ek_vision_layer *l = layer_of(w);
    const ek_row_ops *ops = &v->part.kernels->rows;
    const int p = w->row + i, dim = v->head_dim;
    float *q = ek_row_at(&w->q, p), *k = ek_row_at(&w->kt, i), *val = ek_row_at(&w->vt, i);
    clamp_out(w, &l->q, q, v->heads * dim);
    clamp_out(w, &l->k, k, v->kv_heads * dim);
    clamp_out(w, &l->v, val, v->kv_heads * dim);
    for (int j = 0; j < v->heads; j++, q += dim) {
        ops->rms_norm(q, q, l->q_norm, dim, v->eps);
        rotate(w, q, p);
    }
    if (w->integers) {
        store_row(w, p, k, val);
        return;
    }
    for (int j = 0; j < v->kv_heads; j++, k += dim, val += dim) {
        const size_t to = ((size_t)j * (size_t)w->n + (size_t)p) * (size_t)dim;
        float *turned = w->k + (size_t)j * ek_vision_key_floats(w) + p / 16 * 16 * dim + p % 16;
        ops->rms_norm(k, k, l->k_norm, dim, v->eps);
        rotate(w, k, p);
        for (int d = 0; d < dim; d++) turned[16 * d] = k[d];
        ops->rms_norm(w->val + to, val, NULL, dim, v->eps);
    }
}

void ek_vision_heads(ek_vision_work *w)
{
    const ek_vision_layer *l = layer_of(w);
    const ek_clipped *const m[] = {&l->q, &l->k, &l->v};
    const ek_span y[] = {{ek_row_at(&w->q, w->row), w->q.ld}, w->kt, w->vt};
    each_row(w, input_row);
    multiply(w, m, y, 3, w->v->width);
    each_row(w, head_row);
}

/* ------------------------------------------------------------------ attention and MLP */

/* Rows [first, first + n) of the block, of the heads that read one KV head. */
ek_attn_tensors ek_vision_attention(const ek_vision_work *w, int kv_head, int first, int n)
{
    const ek_vision *v = w->v;
    const int each = v->heads / v->kv_heads, dim = v->head_dim;
    const ptrdiff_t f = sizeof(float), head = kv_head * each * dim;
    ek_attn_tensors t = {.attn = &v->part.kernels->attn,
                         .convert = &v->part.kernels->convert,
                         .entries = 1,
                         .heads = each,
                         .kv_heads = 1,
                         .rows = n,
                         .keys = w->n,
                         .dim = dim,
                         .scale = 1};
    float *k = w->k + (size_t)kv_head * ek_vision_key_floats(w);
    float *val = w->val + (size_t)kv_head * (size_t)w->n * (size_t)dim;
    t.q = (ek_attn_tensor){(uint8_t *)(ek_row_at(&w->q, w->row + first) + head), EK_F32, 0, dim * f, w->q.ld * f, f};
    t.y = (ek_attn_tensor){(uint8_t *)(ek_row_at(&w->o, first) + head), EK_F32, 0, dim * f, w->o.ld * f, f};
    t.k.at = (ek_attn_tensor){(uint8_t *)k, EK_F32, 0, 0, dim * f, f};
    t.k.turned = true;
    t.v.at = (ek_attn_tensor){(uint8_t *)val, EK_F32, 0, 0, dim * f, f};
    return t;
}

static void attend_task(void *arg, int task, int worker)
{
    const ek_vision_work *w = arg;
    const ek_attn_workers alone = ek_attn_workers_of(NULL);
    const int blocks = (w->m + EK_VISION_ATTN_ROWS - 1) / EK_VISION_ATTN_ROWS,
              first = task % blocks * EK_VISION_ATTN_ROWS;
    const ek_attn_tensors t = ek_vision_attention(
        w, task / blocks, first, w->m - first < EK_VISION_ATTN_ROWS ? w->m - first : EK_VISION_ATTN_ROWS);
    ek_attn_tensors_run(&t, &alone, w->attn + (size_t)worker * w->attn_bytes);
}

static void attended_row(const void *self, int i, int thread)
{
    const ek_vision_work *w = self;
    (void)thread;
    const ek_clipped *o = &layer_of(w)->o;
    if (ek_clips_in(&o->clip)) clamp(w, ek_row_at(&w->o, i), ek_row_at(&w->o, i), o->clip.in, o->w.k);
}

static void mixed_row(const void *self, int i, int thread)
{
    const ek_vision_work *w = self;
    (void)thread;
    const ek_vision *v = w->v;
    const ek_vision_layer *l = layer_of(w);
    const ek_row_ops *ops = &v->part.kernels->rows;
    const ek_clipped *const m[] = {&l->gate, &l->up};
    float *y = ek_row_at(&w->y, i), *h = ek_row_at(&w->h, w->row + i);
    clamp_out(w, &l->o, y, v->width);
    ops->rms_norm(y, y, l->post_attention_norm, v->width, v->eps);
    ops->add(h, y, v->width);
    ops->rms_norm(ek_row_at(&w->x[0], i), h, l->pre_mlp_norm, v->width, v->eps);
    clamp_inputs(w, m, 2, i, v->width);
}

static void gated_row(const void *self, int i, int thread)
{
    const ek_vision_work *w = self;
    (void)thread;
    const ek_vision *v = w->v;
    const ek_vision_layer *l = layer_of(w);
    float *gate = ek_row_at(&w->gate, i), *up = ek_row_at(&w->up, i);
    clamp_out(w, &l->gate, gate, v->inner);
    clamp_out(w, &l->up, up, v->inner);
    v->part.kernels->rows.gelu_mul(gate, gate, up, v->inner);
    if (ek_clips_in(&l->down.clip)) clamp(w, gate, gate, l->down.clip.in, v->inner);
}

static void done_row(const void *self, int i, int thread)
{
    const ek_vision_work *w = self;
    (void)thread;
    const ek_vision *v = w->v;
    const ek_vision_layer *l = layer_of(w);
    float *y = ek_row_at(&w->y, i);
    clamp_out(w, &l->down, y, v->width);
    v->part.kernels->rows.rms_norm(y, y, l->post_mlp_norm, v->width, v->eps);
    v->part.kernels->rows.add(ek_row_at(&w->h, w->row + i), y, v->width);
}

void ek_vision_mix(ek_vision_work *w)
{
    const ek_vision_layer *l = layer_of(w);
    const ek_clipped *const m[] = {&l->gate, &l->up};
    const ek_span y[] = {w->gate, w->up};
    if (w->integers)
        ek_attn_run(w->integers, w->v->part.kernels->pool, &w->view, w->see, w->m, ek_row_at(&w->q, w->row), w->q.ld,
                    w->o.at, w->o.ld, w->attn);
    else
        ek_pool_run(w->v->part.kernels->pool, attend_task, w,
                    w->v->kv_heads * ((w->m + EK_VISION_ATTN_ROWS - 1) / EK_VISION_ATTN_ROWS));
    each_row(w, attended_row);
    multiply_one(w, &l->o.w, &w->o, w->acts_o, w->y.at, w->y.ld);
    each_row(w, mixed_row);
    multiply(w, m, y, 2, w->v->width);
    each_row(w, gated_row);
    multiply_one(w, &l->down.w, &w->gate, w->acts_o, w->y.at, w->y.ld);
    each_row(w, done_row);
}

/* ------------------------------------------------------------------ soft tokens */

static void pool_row(const void *self, int i, int thread)
{
    const ek_vision_work *w = self;
    (void)thread;
    const ek_vision *v = w->v;
    const ek_row_ops *ops = &v->part.kernels->rows;
    const int pool = v->patching.pool, tokens = w->across / pool, token = w->row + i;
    const float share = 1.0f / (float)(pool * pool);
    float *x = ek_row_at(&w->x[0], i);
    memset(x, 0, sizeof *x * (size_t)v->width);
    for (int y = 0; y < pool; y++)
        for (int c = 0; c < pool; c++) {
            const int p = (token / tokens * pool + y) * w->across + token % tokens * pool + c;
            ops->axpy(x, share, ek_row_at(&w->h, p), v->width);
        }
    ops->scale(x, (float)sqrt((double)v->width), v->width);
    for (int d = 0; v->std_bias && d < v->width; d++) x[d] = (x[d] - v->std_bias[d]) * v->std_scale[d];
    ops->rms_norm(x, x, NULL, v->width, v->eps);
}

void ek_vision_pool(ek_vision_work *w)
{
    const int hidden = w->v->part.hidden;
    each_row(w, pool_row);
    multiply_one(w, &w->v->projection, &w->x[0], w->acts[0], w->work.rows + (ptrdiff_t)w->row * hidden, hidden);
}
