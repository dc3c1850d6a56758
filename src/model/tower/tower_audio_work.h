/* Inside src/model/tower, of audio towers: one clip on its way, and what its stages share. */
#ifndef EK_MODEL_TOWER_AUDIO_WORK_H
#define EK_MODEL_TOWER_AUDIO_WORK_H

#include <string.h>

#include "model/tower/tower_audio_state.h"

/* One clip. */
typedef struct ek_audio_work {
    ek_tower_work head;
    const ek_audio *a;
    int frames, n, half; /* half: rows behind the first convolution */
    int stage, row;      /* 0: the convolutions; 1 to n_layers; then the projection */
    uint8_t *block;
    size_t bytes;
    float *mel;                /* [frames][bins] */
    float *x, *k, *v, *gate;   /* [n][hidden] */
    float *norm, *y;           /* [EK_AUDIO_ROWS][the widest of hidden, output] */
    float *wide;               /* [EK_AUDIO_ROWS][4 hidden] */
    float *window[2], *map[2]; /* of EK_AUDIO_TOKENS tokens: windows of the convolutions and what they give */
    void *acts;
    int r0, rows; /* of the block that runs */
    const ek_audio_layer *layer;
    const ek_audio_ffw *ffw;
} ek_audio_work;

/* The stages, for rows [w->r0, w->r0 + w->rows), of which those before have been through them. */
void ek_audio_convolve(const ek_audio_work *w);
void ek_audio_layer_run(ek_audio_work *w, const ek_audio_layer *l);

typedef void ek_audio_row_fn(const ek_audio_work *w, int r); /* r: of the block */
/* Calls fn for n rows, spread over the pool if there are enough. */
void ek_audio_each(const ek_audio_work *w, ek_audio_row_fn *fn, int n);
void ek_audio_product(const ek_audio_work *w, const ek_linear *m, const float *x, ptrdiff_t ldx, int rows, float *y,
                      ptrdiff_t ldy);

static inline const ek_row_ops *ek_audio_rows_of(const ek_audio_work *w)
{
    return &w->a->part.kernels->rows;
}

static inline int ek_audio_width(const ek_audio_work *w)
{
    return w->a->c.hidden;
}

static inline float *ek_audio_at(float *rows, const ek_audio_work *w, int r)
{
    return rows + (ptrdiff_t)r * w->a->c.hidden;
}

static inline void ek_audio_in(const ek_audio_work *w, const ek_clip *c, float *y, const float *x, int n)
{
    if (ek_clips_in(c)) ek_audio_rows_of(w)->clamp(y, x, c->in[0], c->in[1], n);
    else if (y != x) memcpy(y, x, sizeof *y * (size_t)n);
}

static inline void ek_audio_out(const ek_audio_work *w, const ek_clip *c, float *y, int n)
{
    if (ek_clips_out(c)) ek_audio_rows_of(w)->clamp(y, y, c->out[0], c->out[1], n);
}

/* y = RMS(x within the limit); y may be x. */
static inline void ek_audio_norm(const ek_audio_work *w, float *y, const float *x, const float *weight)
{
    const float limit = w->a->c.limit;
    ek_audio_rows_of(w)->clamp(y, x, -limit, limit, ek_audio_width(w));
    ek_audio_rows_of(w)->rms_norm(y, y, weight, ek_audio_width(w), EK_AUDIO_NORM_EPS);
}

#endif
