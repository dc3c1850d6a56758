/* A conformer layer: feed forward, attention, convolution, feed forward. Each step reads the results of earlier steps,
 * product by product; row work between products is spread over the pool. */
#include "model/tower/tower_audio_state.h"

static void ffw_begin(const ek_audio_work *w, int r)
{
    float *y = ek_audio_at(w->norm, w, r);
    ek_audio_norm(w, y, ek_audio_at(w->x, w, w->r0 + r), w->ffw->pre);
    ek_audio_in(w, &w->ffw->up.clip, y, y, ek_audio_width(w));
}

static void ffw_middle(const ek_audio_work *w, int r)
{
    const int n = 4 * ek_audio_width(w);
    float *y = w->wide + (ptrdiff_t)r * n;
    ek_audio_out(w, &w->ffw->up.clip, y, n);
    ek_audio_rows_of(w)->sigmoid_mul(y, y, y, n);
    ek_audio_in(w, &w->ffw->down.clip, y, y, n);
}

static void ffw_end(const ek_audio_work *w, int r)
{
    float *y = ek_audio_at(w->y, w, r);
    ek_audio_out(w, &w->ffw->down.clip, y, ek_audio_width(w));
    ek_audio_norm(w, y, y, w->ffw->post);
    ek_audio_rows_of(w)->axpy(ek_audio_at(w->x, w, w->r0 + r), w->a->c.residual, y, ek_audio_width(w));
}

static void feed_forward(ek_audio_work *w, const ek_audio_ffw *f)
{
    const int h = ek_audio_width(w);
    w->ffw = f;
    ek_audio_each(w, ffw_begin, w->rows);
    ek_audio_product(w, &f->up.w, w->norm, h, w->rows, w->wide, 4 * h);
    ek_audio_each(w, ffw_middle, w->rows);
    ek_audio_product(w, &f->down.w, w->wide, 4 * h, w->rows, w->y, h);
    ek_audio_each(w, ffw_end, w->rows);
}

/* The row as each of the three products clips it, one after the other. */
static void attn_begin(const ek_audio_work *w, int r)
{
    const ek_audio_layer *l = w->layer;
    const ek_clip *clip[] = {&l->q.clip, &l->k.clip, &l->v.clip};
    float *y = ek_audio_at(w->norm, w, r);
    ek_audio_norm(w, y, ek_audio_at(w->x, w, w->r0 + r), l->pre_attn);
    for (int i = 0; i < 3; i++)
        ek_audio_in(w, clip[i], ek_audio_at(w->wide, w, i * EK_AUDIO_ROWS + r), y, ek_audio_width(w));
}

static void attn_scale(const ek_audio_work *w, int r)
{
    const ek_audio_layer *l = w->layer;
    float *q = ek_audio_at(w->y, w, r), *k = ek_audio_at(w->k, w, w->r0 + r);
    ek_audio_out(w, &l->q.clip, q, ek_audio_width(w));
    ek_audio_rows_of(w)->mul(q, l->q_scale, ek_audio_width(w));
    ek_audio_out(w, &l->k.clip, k, ek_audio_width(w));
    ek_audio_rows_of(w)->scale(k, EK_AUDIO_K_SCALE, ek_audio_width(w));
    ek_audio_out(w, &l->v.clip, ek_audio_at(w->v, w, w->r0 + r), ek_audio_width(w));
}

static void attn_rows(const ek_audio_work *w, int r)
{
    const ek_audio_config *c = &w->a->c;
    const ek_near near = {c->n_heads, c->hidden / c->n_heads, c->span, c->cap, w->layer->rel_row};
    float *o = ek_audio_at(w->norm, w, r);
    w->a->near(&near, o, ek_audio_at(w->y, w, r), w->k, w->v, c->hidden, w->r0 + r);
    ek_audio_in(w, &w->layer->post.clip, o, o, c->hidden);
}

static void attn_end(const ek_audio_work *w, int r)
{
    float *y = ek_audio_at(w->y, w, r);
    ek_audio_out(w, &w->layer->post.clip, y, ek_audio_width(w));
    ek_audio_norm(w, y, y, w->layer->post_attn);
    ek_audio_rows_of(w)->add(ek_audio_at(w->x, w, w->r0 + r), y, ek_audio_width(w));
}

static void attend(const ek_audio_work *w)
{
    const ek_audio_layer *l = w->layer;
    const ek_tower_ops *k = w->a->part.kernels;
    const ek_linear *m[] = {&l->q.w, &l->k.w, &l->v.w};
    float *to[] = {w->y, ek_audio_at(w->k, w, w->r0), ek_audio_at(w->v, w, w->r0)};
    ek_acts acts[3];
    ek_linear_job job[3];
    ek_audio_each(w, attn_begin, w->rows);
    for (int i = 0; i < 3; i++) {
        uint8_t *mem = (uint8_t *)w->acts + (size_t)i * ek_acts_bytes(EK_AUDIO_ROWS, ek_audio_width(w));
        ek_acts_bind(&acts[i], mem, ek_audio_at(w->wide, w, i * EK_AUDIO_ROWS), ek_audio_width(w), w->rows,
                     ek_audio_width(w));
        ek_acts_quantize_for(&k->linear, k->pool, &acts[i], m[i]);
        job[i] = (ek_linear_job){.w = m[i], .x = &acts[i], .y = to[i], .ldy = ek_audio_width(w)};
    }
    ek_linear_run(&k->linear, k->pool, 3, job);
    ek_audio_each(w, attn_scale, w->rows);
    ek_audio_each(w, attn_rows, w->rows);
    ek_audio_product(w, &l->post.w, w->norm, ek_audio_width(w), w->rows, w->y, ek_audio_width(w));
    ek_audio_each(w, attn_end, w->rows);
}

static void conv_begin(const ek_audio_work *w, int r)
{
    float *y = ek_audio_at(w->norm, w, r);
    ek_audio_rows_of(w)->rms_norm(y, ek_audio_at(w->x, w, w->r0 + r), w->layer->conv_pre, ek_audio_width(w),
                                  w->a->c.eps);
    ek_audio_in(w, &w->layer->start.clip, y, y, ek_audio_width(w));
}

static void conv_gate(const ek_audio_work *w, int r)
{
    const int h = ek_audio_width(w);
    float *u = w->wide + (ptrdiff_t)r * 2 * h;
    ek_audio_out(w, &w->layer->start.clip, u, 2 * h);
    ek_audio_rows_of(w)->sigmoid_mul(ek_audio_at(w->gate, w, w->r0 + r), u, u + h, h);
}

static void conv_taps(const ek_audio_work *w, int r)
{
    const ek_audio_config *c = &w->a->c;
    const int h = c->hidden;
    float *y = ek_audio_at(w->norm, w, r);
    memset(y, 0, sizeof *y * (size_t)h);
    for (int j = 0; j < c->taps; j++) {
        const int row = w->r0 + r - (c->taps - 1) + j;
        if (row >= 0)
            ek_audio_rows_of(w)->mul_add(y, w->layer->tap + (ptrdiff_t)j * h, ek_audio_at(w->gate, w, row), h);
    }
    ek_audio_rows_of(w)->clamp(y, y, -c->limit, c->limit, h);
    ek_audio_rows_of(w)->rms_norm(y, y, w->layer->conv_norm, h, c->eps);
    ek_audio_rows_of(w)->sigmoid_mul(y, y, y, h);
    ek_audio_in(w, &w->layer->end.clip, y, y, h);
}

static void conv_end(const ek_audio_work *w, int r)
{
    float *y = ek_audio_at(w->y, w, r);
    ek_audio_out(w, &w->layer->end.clip, y, ek_audio_width(w));
    ek_audio_rows_of(w)->add(ek_audio_at(w->x, w, w->r0 + r), y, ek_audio_width(w));
}

static void light_conv(const ek_audio_work *w)
{
    const int h = ek_audio_width(w);
    ek_audio_each(w, conv_begin, w->rows);
    ek_audio_product(w, &w->layer->start.w, w->norm, h, w->rows, w->wide, 2 * h);
    ek_audio_each(w, conv_gate, w->rows);
    ek_audio_each(w, conv_taps, w->rows);
    ek_audio_product(w, &w->layer->end.w, w->norm, h, w->rows, w->y, h);
    ek_audio_each(w, conv_end, w->rows);
}

static void layer_out(const ek_audio_work *w, int r)
{
    float *x = ek_audio_at(w->x, w, w->r0 + r);
    ek_audio_norm(w, x, x, w->layer->out);
}

void ek_audio_layer_run(ek_audio_work *w, const ek_audio_layer *l)
{
    w->layer = l;
    feed_forward(w, &l->ffw[0]);
    attend(w);
    light_conv(w);
    feed_forward(w, &l->ffw[1]);
    ek_audio_each(w, layer_out, w->rows);
}

/* The convolutions that make a row of four frames, as products of windows. */

/* y = relu(layer norm over the channels) */
static void norm_relu(const ek_audio_work *w, int i, float *y)
{
    const int n = w->a->c.channels[i];
    ek_audio_rows_of(w)->layer_norm(y, y, w->a->conv_norm[i], NULL, n, w->a->c.eps);
    ek_audio_rows_of(w)->clamp(y, y, 0.0f, __builtin_inff(), n);
}

/* The 3 x 3 windows with stride 2 around row 2 t of a map of rows x cols x channels; `map` is the address of row
 * `first`. Zeros beyond its ends. */
static void windows(float *out, const float *map, int first, int t, int rows, int cols, int channels)
{
    for (int f = 0; f < cols / 2; f++)
        for (int i = -1; i <= 1; i++)
            for (int j = -1; j <= 1; j++, out += channels) {
                const int r = 2 * t + i, q = 2 * f + j;
                const size_t n = sizeof *out * (size_t)channels;
                if (r < 0 || r >= rows || q < 0 || q >= cols) memset(out, 0, n);
                else memcpy(out, map + ((ptrdiff_t)(r - first) * cols + q) * channels, n);
            }
}

/* The number of the first convolution's row that is row 0 of the buffer. */
static int half_first(const ek_audio_work *w)
{
    return w->r0 ? 2 * w->r0 - 1 : 0;
}

static int half_count(const ek_audio_work *w)
{
    const int end = 2 * (w->r0 + w->rows);
    return (end < w->half ? end : w->half) - half_first(w);
}

static void windows_0(const ek_audio_work *w, int r)
{
    const int bins = w->a->c.bins;
    windows(w->window[0] + (ptrdiff_t)r * (bins / 2) * 9, w->mel, 0, half_first(w) + r, w->frames, bins, 1);
}

static void norms_0(const ek_audio_work *w, int r)
{
    const int cols = w->a->c.bins / 2, n = w->a->c.channels[0];
    for (int f = 0; f < cols; f++) norm_relu(w, 0, w->map[0] + ((ptrdiff_t)r * cols + f) * n);
}

static void windows_1(const ek_audio_work *w, int r)
{
    const int cols = w->a->c.bins / 2, n = w->a->c.channels[0];
    windows(w->window[1] + (ptrdiff_t)r * (cols / 2) * 9 * n, w->map[0], half_first(w), w->r0 + r, w->half, cols, n);
}

static void norms_1(const ek_audio_work *w, int r)
{
    const int bands = ek_audio_bands(&w->a->c), n = w->a->c.channels[1];
    for (int f = 0; f < bands; f++) norm_relu(w, 1, w->map[1] + ((ptrdiff_t)r * bands + f) * n);
}

void ek_audio_convolve(const ek_audio_work *w)
{
    const ek_audio_config *c = &w->a->c;
    const int cols = c->bins / 2, bands = ek_audio_bands(c), count = half_count(w), flat = bands * c->channels[1];
    ek_audio_each(w, windows_0, count);
    ek_audio_product(w, &w->a->conv[0], w->window[0], 9, count * cols, w->map[0], c->channels[0]);
    ek_audio_each(w, norms_0, count);
    ek_audio_each(w, windows_1, w->rows);
    ek_audio_product(w, &w->a->conv[1], w->window[1], 9 * c->channels[0], w->rows * bands, w->map[1], c->channels[1]);
    ek_audio_each(w, norms_1, w->rows);
    ek_audio_product(w, &w->a->input, w->map[1], flat, w->rows, ek_audio_at(w->x, w, w->r0), c->hidden);
}

/* How the work on the rows of a block is spread over the pool. */

typedef struct each_arg {
    const ek_audio_work *w;
    ek_audio_row_fn *fn;
    int n, per_task;
} each_arg;

static void each_task(void *arg, int task, int worker)
{
    const each_arg *e = arg;
    (void)worker;
    for (int r = task * e->per_task; r < (task + 1) * e->per_task && r < e->n; r++) e->fn(e->w, r);
}

void ek_audio_each(const ek_audio_work *w, ek_audio_row_fn *fn, int n)
{
    ek_pool *pool = w->a->part.kernels->pool;
    enum { TASKS_PER_THREAD = 4, WORTH_WAKING = 6 };
    each_arg arg = {w, fn, n, 1 + (n - 1) / (ek_pool_threads(pool) * TASKS_PER_THREAD)};
    if (n < WORTH_WAKING) arg.per_task = n;
    ek_pool_run(pool, each_task, &arg, (n + arg.per_task - 1) / arg.per_task);
}

void ek_audio_product(const ek_audio_work *w, const ek_linear *m, const float *x, ptrdiff_t ldx, int rows, float *y,
                      ptrdiff_t ldy)
{
    ek_tower_product(w->a->part.kernels, m, x, ldx, rows, w->acts, y, ldy);
}
