/* Inside src/model/tower: the interface of one sense's encoder to tower.c, and the code that all encoders share
 * (tower_bind.c, tower_part.c). */
#ifndef EK_MODEL_TOWER_PART_H
#define EK_MODEL_TOWER_PART_H

#include "model/tower/source/tower_source.h"
#include "model/tower/tower.h"
#include "model/weights/weights.h"
#include "ops/attn/attn_tensors.h"
#include "ops/linear/linear.h"
#include "ops/rows/rows.h"

/* ------------------------------------------------------------------ weights */

/* The weights of one sense on their way into memory. An encoder's `bind` function calls ek_tower_matrix and its
 * neighbours for each weight. They look the tensor up, check it and record its destination. Once all weights are bound,
 * they are packed into one block. */
typedef struct ek_tower_binder {
    ek_tower_source *from;
    ek_items items;
    void **own; /* memory that bound data points to: tensors that were put in another order */
    int n_own;
} ek_tower_binder;

/* Names are those of transformers without "model.": a matrix with its module's ("vision_tower.encoder.layers.0.mlp.
 * gate_proj.linear"), a vector with its whole one. *w is filled when the weights are packed. */
ek_err ek_tower_matrix(ek_tower_binder *b, const char *name, int n, int k, ek_linear *w);
ek_err ek_tower_vector(ek_tower_binder *b, const char *name, int n, float **v);
/* Floats of any shape, one after the other as they are stored, widened to f32. */
ek_err ek_tower_floats(ek_tower_binder *b, const char *name, int n_dims, const int64_t *dim, float **v);
/* A table of n rows of k floats that stays in the file; a row is read by ek_embedding_row. */
ek_err ek_tower_table(ek_tower_binder *b, const char *name, int n_dims, const int64_t *dim, ek_embedding_table *t);
/* Data that the caller has made of a tensor: a matrix, or (n 1) a vector. Memory of the data that is not the file's
 * is handed over to ek_tower_own. */
void ek_tower_matrix_of(ek_tower_binder *b, const char *name, const ek_weight_data *data, ek_linear *w);
void ek_tower_vector_of(ek_tower_binder *b, const char *name, const ek_weight_data *data, float **v);
void *ek_tower_own(ek_tower_binder *b, void *memory); /* freed after packing; returns it */

/* The bounds of a clipped linear, y = clamp(W clamp(x, in), out); infinite where it is not clipped. */
typedef struct ek_clip {
    float in[2], out[2]; /* min, max */
} ek_clip;
typedef struct ek_clipped {
    ek_linear w;
    ek_clip clip;
} ek_clipped;

/* name: of the module, without ".linear". clips: use_clipped_linears of the configuration. If it is set, all four
 * bounds must be there, no NaN, min <= max; EFORMAT names what is missing. */
ek_err ek_tower_clipped(ek_tower_binder *b, const char *name, int n, int k, bool clips, ek_clipped *w);

static inline bool ek_clips_in(const ek_clip *c)
{
    return c->in[0] > -__builtin_inff() || c->in[1] < __builtin_inff();
}
static inline bool ek_clips_out(const ek_clip *c)
{
    return c->out[0] > -__builtin_inff() || c->out[1] < __builtin_inff();
}

/* ------------------------------------------------------------------ kernels of this machine */

typedef struct ek_tower_ops {
    unsigned cpu;
    ek_pool *pool; /* of ek_towers_opts: weights may lie on its nodes, so products run on it */
    ek_linear_ops linear;
    ek_row_ops rows;
    ek_attn_rows_ops attn;
    ek_convert_ops convert;
    int integers_from; /* of ek_towers_opts, or the engine's */
} ek_tower_ops;

/* ------------------------------------------------------------------ an encoder */

typedef struct ek_tower_part ek_tower_part;

typedef struct ek_tower_part_ops {
    ek_err (*ready)(ek_tower_part *p); /* after packing: what is computed from the weights once. NULL: nothing */
    /* Numbers of the configuration that rows depend on, chained into a hash. */
    uint64_t (*hash)(const ek_tower_part *p, uint64_t h);
    void (*close)(ek_tower_part *p); /* frees the part; its packed weights are tower.c's */
} ek_tower_part_ops;

/* The head of an encoder's own struct. */
struct ek_tower_part {
    const ek_tower_part_ops *ops;
    const ek_tower_ops *kernels;
    int hidden; /* of the text model */
};

/* The encoders of a model that has them and has packed their weights (ek_towers_load_image, …), for a device that
 * computes them; else NULL. */
const ek_tower_part *ek_towers_image_part(const ek_towers *t);
const ek_tower_part *ek_towers_sound_part(const ek_towers *t);

typedef struct ek_tower_work_ops {
    void (*advance)(ek_tower_work *w, double max_macs); /* lowers w->left; 0: done */
    void (*free)(ek_tower_work *w);                     /* all but rows, which ek_tower_free frees */
} ek_tower_work_ops;

/* The head of a work's own struct. */
struct ek_tower_work {
    const ek_tower_work_ops *ops;
    const ek_tower_part *part;
    int n_rows;
    float *rows; /* [n_rows][part->hidden], of ek_alloc_big */
    double left; /* multiply-adds */
};

/* Memory of ek_alloc_big for w, whose ops, part and n_rows are set: its rows, and *block of so many bytes, which
 * ops->free frees. On ENOMEM w is freed. */
ek_err ek_tower_take_memory(ek_tower_work *w, uint8_t **block, size_t bytes);

/* EINVAL for a picture of so many patches that a table of n positions does not reach to. */
ek_err ek_tower_check_positions(int across, int down, int n);

/* ------------------------------------------------------------------ the encoders of sounds: the conformer and the
 * 12B's runs of samples. */

/* The 12B's: runs of EK_SOUND_RUN samples, normed, and a projection. */
typedef struct ek_sound_runs {
    ek_tower_part part;
    float eps;
    ek_linear embed;
} ek_sound_runs;

const ek_sound_runs *ek_sound_runs_of(const ek_tower_part *p); /* NULL: an encoder of another kind, or none */

/* Reads audio_config of b->from, binds all weights and allocates the part. *out NULL: the model takes no sounds. kind
 * is set otherwise. */
ek_err ek_tower_audio_open(ek_tower_part **out, ek_sound_kind *kind, ek_tower_binder *b, const ek_tower_ops *kernels,
                           int hidden);
/* tokens: of ek_sound_tokens for that many samples, which tower.c has checked. */
void ek_tower_audio_cost(ek_tower_cost *out, const ek_tower_part *p, int samples, int tokens);
/* The weights are packed and ready. Copies what it needs of the sound. ENOMEM. */
ek_err ek_tower_audio_begin(ek_tower_work **out, const ek_tower_part *p, const ek_sound *sound, int tokens);

#endif
