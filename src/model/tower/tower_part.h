/* Inside src/model/tower: the interface of one sense's encoder to tower.c, and the code that all encoders share
 * (tower_part.c). */
#ifndef EK_MODEL_TOWER_PART_H
#define EK_MODEL_TOWER_PART_H

#include "model/tower/source/tower_source.h"
#include "model/tower/tower.h"
#include "model/weights/weights.h"
#include "ops/attn/attn_tensors.h"
#include "ops/linear/linear.h"
#include "ops/rows/rows.h"

/* --- weights --- */

/* The weights of one sense on their way into memory. An encoder's `bind` function calls ek_tower_matrix and its
 * neighbours for each weight. They look the tensor up, check it and record its destination. Once all weights are bound,
 * they are packed into one block. */
typedef struct ek_tower_binder {
    ek_tower_source *from;
    ek_items items;
    void **own; /* memory behind bound data: tensors that were reordered */
    int n_own;
} ek_tower_binder;

/* Names are those of transformers without "model.": a matrix has its module's name
 * ("vision_tower.encoder.layers.0.mlp.gate_proj.linear"), a vector its whole name. *w is filled when the weights are
 * packed. */
ek_err ek_tower_matrix(ek_tower_binder *b, const char *name, int n, int k, ek_linear *w);
ek_err ek_tower_vector(ek_tower_binder *b, const char *name, int n, float **v);
/* A table of n rows of k floats that stays in the file; ek_embedding_row reads a row. */
ek_err ek_tower_table(ek_tower_binder *b, const char *name, int n_dims, const int64_t *dim, ek_embedding_table *t);
/* Binds data that the caller made from a tensor: a matrix, or (n is 1) a vector. Data outside the file's memory is
 * handed over with ek_tower_own. */
void ek_tower_matrix_of(ek_tower_binder *b, const char *name, const ek_weight_data *data, ek_linear *w);
void ek_tower_vector_of(ek_tower_binder *b, const char *name, const ek_weight_data *data, float **v);
void *ek_tower_own(ek_tower_binder *b, void *memory); /* freed after packing; returns it */

/* The bounds of a clipped linear, y = clamp(W clamp(x, in), out); infinite if it is not clipped. */
typedef struct ek_clip {
    float in[2], out[2]; /* min, max */
} ek_clip;
typedef struct ek_clipped {
    ek_linear w;
    ek_clip clip;
} ek_clipped;

/* name: of the module, without ".linear". clips: use_clipped_linears of the configuration. If it is set, all four
 * bounds are required, no NaN, min <= max; EFORMAT names a missing or wrong one. */
ek_err ek_tower_clipped(ek_tower_binder *b, const char *name, int n, int k, bool clips, ek_clipped *w);

static inline bool ek_clips_in(const ek_clip *c)
{
    return c->in[0] > -__builtin_inff() || c->in[1] < __builtin_inff();
}
static inline bool ek_clips_out(const ek_clip *c)
{
    return c->out[0] > -__builtin_inff() || c->out[1] < __builtin_inff();
}

/* --- kernels of this machine --- */

typedef struct ek_tower_ops {
    unsigned cpu;
    ek_pool *pool; /* the pool of ek_towers_opts; products run on it, because weights may lie on its NUMA nodes */
    ek_linear_ops linear;
    ek_row_ops rows;
    ek_attn_rows_ops attn;
    ek_convert_ops convert;
    int integers_from; /* the limit of ek_towers_opts, or the engine's rule */
} ek_tower_ops;

/* y = rows of x by m, with acts as memory for codes; NULL if m reads floats. */
void ek_tower_product(const ek_tower_ops *k, const ek_linear *m, const float *x, ptrdiff_t ldx, int rows, void *acts,
                      float *y, ptrdiff_t ldy);

/* --- an encoder --- */

typedef struct ek_tower_part ek_tower_part;

typedef struct ek_tower_part_ops {
    ek_err (*ready)(ek_tower_part *p); /* after packing: computes values from the weights once. NULL: none */
    /* Chains the configuration's numbers that rows depend on into a hash. */
    uint64_t (*hash)(const ek_tower_part *p, uint64_t h);
    void (*close)(ek_tower_part *p); /* frees the part, but not its packed weights, which tower.c owns */
} ek_tower_part_ops;

/* The head of each encoder's own struct. */
struct ek_tower_part {
    const ek_tower_part_ops *ops;
    const ek_tower_ops *kernels;
    int hidden; /* hidden_size of the text model */
};

/* The encoders, for a device that computes them. NULL if the model has none, or its weights are not packed
 * (ek_towers_load_image, …). */
const ek_tower_part *ek_towers_image_part(const ek_towers *t);
const ek_tower_part *ek_towers_sound_part(const ek_towers *t);

typedef struct ek_tower_work_ops {
    void (*advance)(ek_tower_work *w, double max_macs); /* lowers w->left; 0: done */
    void (*free)(ek_tower_work *w);                     /* frees everything except rows, which ek_tower_free frees */
} ek_tower_work_ops;

/* The head of each work's own struct. */
struct ek_tower_work {
    const ek_tower_work_ops *ops;
    const ek_tower_part *part;
    int n_rows;
    float *rows; /* [n_rows][part->hidden], from ek_alloc_big */
    double left; /* remaining multiply-adds */
};

/* Allocates w's rows, and *block of `bytes`, with ek_alloc_big; w's ops, part and n_rows are set. ops->free frees
 * *block. ENOMEM frees w. */
ek_err ek_tower_take_memory(ek_tower_work *w, uint8_t **block, size_t bytes);

/* EINVAL if a picture of across x down patches needs more than the table's n positions per axis. */
ek_err ek_tower_check_positions(int across, int down, int n);

/* --- encoders of sounds: the conformer, and the 12B's runs of samples --- */

/* The 12B's encoder: runs of EK_SOUND_RUN samples, normed and projected. */
typedef struct ek_sound_runs {
    ek_tower_part part;
    float eps;
    ek_linear embed;
} ek_sound_runs;

const ek_sound_runs *ek_sound_runs_of(const ek_tower_part *p); /* NULL: another kind of encoder, or none */

/* Reads audio_config of b->from, binds all weights and allocates the part. *out NULL: the model takes no sounds;
 * otherwise kind is set. */
ek_err ek_tower_audio_open(ek_tower_part **out, ek_sound_kind *kind, ek_tower_binder *b, const ek_tower_ops *kernels,
                           int hidden);
/* tokens: ek_sound_tokens of that many samples, which tower.c has checked. */
void ek_tower_audio_cost(ek_tower_cost *out, const ek_tower_part *p, int samples, int tokens);
/* The weights are packed and ready. Copies the needed part of the sound. ENOMEM. */
ek_err ek_tower_audio_begin(ek_tower_work **out, const ek_tower_part *p, const ek_sound *sound, int tokens);

/* --- rows of floats in a work's memory, and row work spread over threads --- */

typedef struct ek_span {
    float *at;
    ptrdiff_t ld; /* elements */
} ek_span;

static inline float *ek_row_at(const ek_span *r, int i)
{
    return r->at + i * r->ld;
}

/* Hands out parts of a block of memory; while base is NULL it only counts the needed bytes. */
typedef struct ek_layout {
    uint8_t *base;
    size_t used;
} ek_layout;

static inline void *ek_take(ek_layout *l, size_t n)
{
    void *p = l->base ? l->base + l->used : NULL;
    l->used += (n + 63) / 64 * 64;
    return p;
}

/* Rows that begin on cache lines, and not all in the same sets of a first-level cache. */
static inline ek_span ek_take_rows(ek_layout *l, int n, int width)
{
    const ptrdiff_t ld = (width + 15) / 16 * 16 + (width % 1024 < 16 ? 16 : 0);
    return (ek_span){(float *)ek_take(l, sizeof(float) * (size_t)n * (size_t)ld), ld};
}

typedef void ek_tower_row_fn(const void *self, int row, int thread);
typedef struct ek_tower_spread {
    ek_tower_row_fn *fn;
    const void *self;
    int n;
} ek_tower_spread;

enum { EK_TOWER_TASK = 8 /* rows */ };

static inline void ek_tower_spread_task(void *arg, int task, int worker)
{
    const ek_tower_spread *s = (const ek_tower_spread *)arg;
    for (int i = task * EK_TOWER_TASK; i < (task + 1) * EK_TOWER_TASK && i < s->n; i++) s->fn(s->self, i, worker);
}

/* Calls fn(self, row, thread) for rows [0, n). */
static inline void ek_tower_each_row(ek_pool *pool, ek_tower_row_fn *fn, const void *self, int n)
{
    ek_tower_spread s = {fn, self, n};
    ek_pool_run(pool, ek_tower_spread_task, &s, (n + EK_TOWER_TASK - 1) / EK_TOWER_TASK);
}

#endif
