/* Inside src/model/tower: the weights of an audio tower, and the encoding of one clip. */
#ifndef EK_MODEL_TOWER_AUDIO_STATE_H
#define EK_MODEL_TOWER_AUDIO_STATE_H

#include "model/tower/tower_part.h"
#include "ops/attn/attn_near.h"

#include <string.h>

#define EK_AUDIO_NORM_EPS 1e-6f               /* of the norms that do not use rms_norm_eps */
#define EK_AUDIO_K_SCALE  1.8946361239720115f /* scale of keys: ln(1 + e) / ln 2 */

enum { EK_AUDIO_MAX_LAYERS = 64, EK_AUDIO_MAX_TAPS = 64, EK_AUDIO_TOKENS = 32, EK_AUDIO_ROWS = 128 };

/* audio_config. A missing key has the default of transformers' class. */
typedef struct ek_audio_config {
    int hidden, n_layers, n_heads;
    int bins;        /* log-mel bins per frame; equals channels[0] */
    int channels[2]; /* of the two convolutions, which make one row of four frames */
    int taps;        /* conv_kernel_size: rows of a depthwise convolution: the row itself and those before it */
    int span;        /* keys that a query sees: attention_context_left - 1 */
    float cap;       /* attention_logit_cap */
    float residual;  /* residual_weight */
    float limit;     /* gradient_clipping: values are clamped to +-limit before norms */
    float eps;       /* rms_norm_eps: of the convolutions' norms and of embed_audio; the other norms use 1e-6 */
    int output;      /* output_proj_dims */
    bool clips;      /* use_clipped_linears */
    int text;        /* hidden size of the text model */
} ek_audio_config;

static inline int ek_audio_bands(const ek_audio_config *c) /* frequencies after both convolutions */
{
    return c->bins / 4;
}

typedef struct ek_audio_ffw {
    float *pre, *post;
    ek_clipped up, down;
} ek_audio_ffw;

typedef struct ek_audio_layer {
    ek_audio_ffw ffw[2];
    float *pre_attn, *post_attn, *out;
    ek_clipped q, k, v, post;
    ek_linear rel;
    float *scale; /* per_dim_scale, head_dim floats */
    float *conv_pre, *conv_norm;
    ek_clipped start, end;
    float *tap;     /* taps x hidden */
    float *q_scale; /* computed from the weights: hidden floats */
    float *rel_row; /* computed from the weights: span rows of hidden */
} ek_audio_layer;

typedef struct ek_audio {
    ek_tower_part part;
    ek_audio_config c;
    bool scaled; /* per_dim_scale is stored after softplus, as in GGUF */
    ek_near_fn *near;
    ek_linear conv[2]; /* inputs in the order (row, column, channel) of a window of 3 x 3 */
    float *conv_norm[2];
    ek_linear input, output, embed;
    float *bias; /* of output */
    ek_audio_layer layer[EK_AUDIO_MAX_LAYERS];
    float *made; /* memory of q_scale and rel_row of all layers */
} ek_audio;

const ek_audio *ek_audio_of(const ek_tower_part *p); /* NULL: another kind of encoder, or none */

/* Binds every weight of a->c. */
ek_err ek_audio_bind(ek_audio *a, ek_tower_binder *b);
/* Computes q_scale and rel_row, after packing. */
ek_err ek_audio_ready(ek_audio *a);

/* Multiply-adds per token in the convolutions, in a layer, and after the last layer. */
double ek_audio_macs_begin(const ek_audio_config *c);
double ek_audio_macs_layer(const ek_audio_config *c);
double ek_audio_macs_end(const ek_audio_config *c);

/* Bytes that ek_audio_begin takes besides the rows. */
size_t ek_audio_work_bytes(const ek_audio *a, int frames);
/* mel: frames rows of c.bins floats, copied. ENOMEM. */
ek_err ek_audio_begin(ek_tower_work **out, const ek_audio *a, const float *mel, int frames);

/* --- the encoding of one clip, and helpers of its stages --- */

/* The encoding of one clip. */
typedef struct ek_audio_work {
    ek_tower_work head;
    const ek_audio *a;
    int frames, n, half; /* half: rows after the first convolution */
    int stage, row;      /* 0: the convolutions; 1 to n_layers; then the projection */
    uint8_t *block;
    size_t bytes;
    float *mel;                /* [frames][bins] */
    float *x, *k, *v, *gate;   /* [n][hidden] */
    float *norm, *y;           /* [EK_AUDIO_ROWS][max of hidden and output] */
    float *wide;               /* [EK_AUDIO_ROWS][4 hidden] */
    float *window[2], *map[2]; /* inputs and outputs of the convolutions, for EK_AUDIO_TOKENS tokens */
    void *acts;
    int r0, rows; /* of the current block */
    const ek_audio_layer *layer;
    const ek_audio_ffw *ffw;
} ek_audio_work;

/* The stages, for rows [w->r0, w->r0 + w->rows); earlier rows have passed the same stage. */
void ek_audio_convolve(const ek_audio_work *w);
void ek_audio_layer_run(ek_audio_work *w, const ek_audio_layer *l);

typedef void ek_audio_row_fn(const ek_audio_work *w, int r); /* r: index in the block */
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

/* y = RMS norm of x clamped to +-limit; y may be x. */
static inline void ek_audio_norm(const ek_audio_work *w, float *y, const float *x, const float *weight)
{
    const float limit = w->a->c.limit;
    ek_audio_rows_of(w)->clamp(y, x, -limit, limit, ek_audio_width(w));
    ek_audio_rows_of(w)->rms_norm(y, y, weight, ek_audio_width(w), EK_AUDIO_NORM_EPS);
}

#endif
