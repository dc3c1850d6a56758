/* Inside src/model/tower, of sounds: what an audio tower is made of, and the encoding of one clip. */
#ifndef EK_MODEL_TOWER_AUDIO_STATE_H
#define EK_MODEL_TOWER_AUDIO_STATE_H

#include "model/tower/tower_audio.h"
#include "ops/attn/attn_near.h"

#define EK_AUDIO_NORM_EPS 1e-6f               /* of the norms that rms_norm_eps does not reach */
#define EK_AUDIO_K_SCALE  1.8946361239720115f /* of keys: ln(1 + e) / ln 2 */

enum { EK_AUDIO_MAX_LAYERS = 64, EK_AUDIO_MAX_TAPS = 64, EK_AUDIO_TOKENS = 32, EK_AUDIO_ROWS = 128 };

/* audio_config. Transformers' defaults where a key is absent, as its class has them. */
typedef struct ek_audio_config {
    int hidden, n_layers, n_heads;
    int bins;        /* log-mel bins of a frame: channels[0], see ek_audio_config_check */
    int channels[2]; /* of the convolutions that make one row of four frames */
    int taps;        /* conv_kernel_size: rows that a depthwise convolution sees, the own one and those before */
    int span;        /* keys that a query sees: attention_context_left - 1 */
    float cap;       /* attention_logit_cap */
    float residual;  /* residual_weight */
    float limit;     /* gradient_clipping: values before norms stay within it */
    float eps;       /* rms_norm_eps: of the convolutions' norms and of embed_audio; the others have 1e-6 */
    int output;      /* output_proj_dims */
    bool clips;      /* use_clipped_linears */
    int text;        /* hidden size of the text model */
} ek_audio_config;

/* in: audio_config. EFORMAT and EUNSUPPORTED with field, value and what would do. */
ek_err ek_audio_config_read(ek_audio_config *c, const ek_tower_source *from, const json_t *in, int text);
/* The rules between fields, for whatever filled c. */
ek_err ek_audio_config_check(const ek_audio_config *c, const char *file);

static inline int ek_audio_bands(const ek_audio_config *c) /* frequencies that are left of the bins */
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
    float *q_scale; /* made when the weights are there: hidden floats */
    float *rel_row; /* span rows of hidden */
} ek_audio_layer;

typedef struct ek_audio {
    ek_tower_part part;
    ek_audio_config c;
    bool scaled; /* per_dim_scale went through softplus already, as GGUF has it */
    ek_near_fn *near;
    ek_linear conv[2]; /* inputs in the order (row, column, channel) of a window of 3 x 3 */
    float *conv_norm[2];
    ek_linear input, output, embed;
    float *bias; /* of output */
    ek_audio_layer layer[EK_AUDIO_MAX_LAYERS];
    float *made; /* memory of q_scale and rel_row of all layers */
} ek_audio;

const ek_audio *ek_audio_of(const ek_tower_part *p); /* NULL: an encoder of another kind, or none */

/* Binds every weight of a->c. */
ek_err ek_audio_bind(ek_audio *a, ek_tower_binder *b);
/* After packing: q_scale, rel_row. */
ek_err ek_audio_ready(ek_audio *a);

/* Multiply-adds of a token in the convolutions, in a layer, and behind the last one. */
double ek_audio_macs_begin(const ek_audio_config *c);
double ek_audio_macs_layer(const ek_audio_config *c);
double ek_audio_macs_end(const ek_audio_config *c);

/* Bytes that ek_audio_begin takes beside the rows. */
size_t ek_audio_work_bytes(const ek_audio *a, int frames);
/* mel: frames rows of c.bins, copied. ENOMEM. */
ek_err ek_audio_begin(ek_tower_work **out, const ek_audio *a, const float *mel, int frames);

#endif
