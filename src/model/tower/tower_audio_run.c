/* The encoding of one clip: convolutions, conformer layers, projection. A stage runs over the clip's rows in ascending
 * order, in blocks. A row reads only itself and earlier rows (whose keys, values and gates lie in buffers of the whole
 * clip), so no division can change a bit. Formula: transformers, modeling_gemma4.py, Gemma4AudioModel;
 * docs/numerics/media.md. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/tower/tower_audio_state.h"

/* ------------------------------------------------------------------ memory */

static void *take(ek_audio_work *w, size_t n, size_t size)
{
    void *p = w->block ? w->block + w->bytes : NULL;
    w->bytes += (n * size + 63) / 64 * 64;
    return p;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The number of the first convolution's rows that this many tokens read. */
static int half_rows(int tokens)
{
    return 2 * tokens + 1;
}

static void lay_out(ek_audio_work *w)
{
    const ek_audio_config *c = &w->a->c;
    const size_t n = (size_t)w->n, h = (size_t)c->hidden, width = larger(h, (size_t)c->output), f = sizeof(float);
    const size_t near = (size_t)half_rows(EK_AUDIO_TOKENS) * (size_t)(c->bins / 2);
    const size_t far = (size_t)EK_AUDIO_TOKENS * (size_t)ek_audio_bands(c);
    const size_t flat = (size_t)ek_audio_bands(c) * (size_t)c->channels[1];
    w->bytes = 0;
    w->mel = take(w, (size_t)w->frames * (size_t)c->bins, f);
    w->x = take(w, n * h, f), w->k = take(w, n * h, f), w->v = take(w, n * h, f), w->gate = take(w, n * h, f);
    w->norm = take(w, EK_AUDIO_ROWS * width, f);
    w->y = take(w, EK_AUDIO_ROWS * width, f);
    w->wide = take(w, EK_AUDIO_ROWS * 4 * h, f);
    w->window[0] = take(w, near * 9, f);
    w->map[0] = take(w, near * (size_t)c->channels[0], f);
    w->window[1] = take(w, far * 9 * (size_t)c->channels[0], f);
    w->map[1] = take(w, far * (size_t)c->channels[1], f);
    size_t acts = larger(3 * ek_acts_bytes(EK_AUDIO_ROWS, (int)h), ek_acts_bytes(EK_AUDIO_ROWS, 4 * (int)h));
    acts = larger(acts, ek_acts_bytes(EK_AUDIO_ROWS, c->output));
    acts = larger(acts, ek_acts_bytes((int)near, 9));
    acts = larger(acts, ek_acts_bytes((int)far, 9 * c->channels[0]));
    w->acts = take(w, larger(acts, ek_acts_bytes(EK_AUDIO_TOKENS, (int)flat)), 1);
}

static int tokens_of(int frames)
{
    return (frames + 3) / 4;
}

size_t ek_audio_work_bytes(const ek_audio *a, int frames)
{
    ek_audio_work w = {.a = a, .frames = frames, .n = tokens_of(frames)};
    lay_out(&w);
    return w.bytes + sizeof w;
}

/* ------------------------------------------------------------------ the projection */

static void output_row(const ek_audio_work *w, int r)
{
    const int n = w->a->c.output;
    float *y = w->y + (ptrdiff_t)r * n;
    ek_audio_rows_of(w)->add(y, w->a->bias, n);
    ek_audio_rows_of(w)->rms_norm(y, y, NULL, n, w->a->c.eps);
}

static void put_out(const ek_audio_work *w)
{
    const ek_audio_config *c = &w->a->c;
    ek_audio_product(w, &w->a->output, ek_audio_at(w->x, w, w->r0), c->hidden, w->rows, w->y, c->output);
    ek_audio_each(w, output_row, w->rows);
    ek_audio_product(w, &w->a->embed, w->y, c->output, w->rows, w->head.rows + (ptrdiff_t)w->r0 * c->text, c->text);
}

/* ------------------------------------------------------------------ slices */

double ek_audio_macs_begin(const ek_audio_config *c)
{
    const double first = 2.0 * (c->bins / 2) * 9 * c->channels[0];
    const double second = (double)ek_audio_bands(c) * 9 * c->channels[0] * c->channels[1];
    return first + second + (double)ek_audio_bands(c) * c->channels[1] * c->hidden;
}

double ek_audio_macs_layer(const ek_audio_config *c)
{
    return (double)c->hidden * (23.0 * c->hidden + 3.0 * c->span + c->taps);
}

double ek_audio_macs_end(const ek_audio_config *c)
{
    return (double)c->output * (c->hidden + c->text);
}

static double macs_of_stage(const ek_audio_work *w)
{
    const ek_audio_config *c = &w->a->c;
    return w->stage == 0            ? ek_audio_macs_begin(c)
           : w->stage > c->n_layers ? ek_audio_macs_end(c)
                                    : ek_audio_macs_layer(c);
}

/* Runs rows [r0, r0 + rows) through a stage that earlier rows have passed. */
static void run_block(ek_audio_work *w)
{
    const int layers = w->a->c.n_layers;
    if (w->stage == 0) ek_audio_convolve(w);
    else if (w->stage <= layers) ek_audio_layer_run(w, &w->a->layer[w->stage - 1]);
    else put_out(w);
}

static void advance(ek_tower_work *head, double max_macs)
{
    enum { FEW_ROWS = 16 }; /* fewer take as long, because the weights come from memory */
    ek_audio_work *w = (ek_audio_work *)head;
    const int stages = w->a->c.n_layers + 2;
    while (w->stage < stages && max_macs > 0) {
        const double each_row = macs_of_stage(w);
        const int max = w->stage ? EK_AUDIO_ROWS : EK_AUDIO_TOKENS;
        w->r0 = w->row;
        w->rows = max_macs / each_row < FEW_ROWS ? FEW_ROWS
                  : max_macs / each_row > max    ? max
                                                 : (int)(max_macs / each_row);
        if (w->rows > w->n - w->row) w->rows = w->n - w->row;
        run_block(w);
        max_macs -= each_row * w->rows;
        head->left -= each_row * w->rows;
        w->row += w->rows;
        if (w->row == w->n) w->row = 0, w->stage++;
    }
    if (w->stage == stages) head->left = 0;
    else if (head->left <= 0) head->left = 1; /* rounding must not end it early */
}

static void free_work(ek_tower_work *head)
{
    ek_audio_work *w = (ek_audio_work *)head;
    ek_free_big(w->block, w->bytes);
    free(w);
}

ek_err ek_audio_begin(ek_tower_work **out, const ek_audio *a, const float *mel, int frames)
{
    static const ek_tower_work_ops work_ops = {advance, free_work};
    const ek_audio_config *c = &a->c;
    ek_audio_work *w = ek_alloc(sizeof *w);
    *w = (ek_audio_work){.a = a, .frames = frames, .n = tokens_of(frames), .half = (frames + 1) / 2};
    w->head = (ek_tower_work){.ops = &work_ops, .part = &a->part, .n_rows = w->n};
    lay_out(w);
    EK_TRY(ek_tower_take_memory(&w->head, &w->block, w->bytes));
    lay_out(w);
    memcpy(w->mel, mel, sizeof *mel * (size_t)frames * (size_t)c->bins);
    w->head.left = w->n * (ek_audio_macs_begin(c) + c->n_layers * ek_audio_macs_layer(c) + ek_audio_macs_end(c));
    *out = &w->head;
    return EK_OK;
}
