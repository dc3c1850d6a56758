/* The weights of a model as the forward pass reads them, and how they are loaded:
 * a rule (bind.c) gives a weight's name, role, shape and place in ek_weights; a rule and a source give an
 * item; items are laid out in one block of memory and packed into it. */
#ifndef EK_MODEL_WEIGHTS_H
#define EK_MODEL_WEIGHTS_H

#include "base/alloc.h"
#include "model/config/config.h"
#include "model/weights/role.h"
#include "model/source/source.h"
#include "ops/linear/linear.h"

/* An embedding table left where it lies; a row is decoded when a token asks for it. */
typedef struct ek_embedding_table {
    ek_weight_data data; /* without planes: synthetic */
    uint64_t seed;
} ek_embedding_table;

/* out[0..n) = elements [first, first + n) of a row. */
void ek_embedding_row(const ek_embedding_table *t, int row, int first, int n, float *out);

typedef struct ek_layer_weights {
    ek_linear q, k, v, o; /* k, v: n == 0 where the layer has none */
    ek_linear gate, up, down;
    ek_linear router;
    ek_linear *expert_gate, *expert_up, *expert_down; /* n_experts each */
    ek_linear per_layer_gate, per_layer_proj;
    float *input_norm, *q_norm, *k_norm, *post_attention_norm, *pre_mlp_norm, *post_mlp_norm;
    float *post_mlp_norm_1, *pre_mlp_norm_2, *post_mlp_norm_2, *router_scale, *expert_scale;
    float *post_per_layer_norm, *scalar;
} ek_layer_weights;

typedef struct ek_weights {
    ek_linear embed; /* lookup, and the head where the model has none of its own */
    ek_linear head;  /* n == 0: it is embed */
    float *norm, *per_layer_norm;
    /* per_layer_model_projection, cut by rows: what the layers before the last owner of keys
     * and values need, which every prompt row runs, and the rest. */
    ek_linear per_layer_head, per_layer_tail;
    ek_embedding_table per_layer_embed;
    ek_layer_weights layer[EK_MAX_LAYERS];
    ek_linear *experts; /* all layers' */
    /* drafters */
    ek_linear pre_projection, post_projection, centroids;
    int32_t *token_ordering; /* owned; [vocab_size]: centroid c has the tokens at [c n, (c + 1) n) */
    uint8_t *block;          /* writable only while it is packed */
    size_t block_bytes;
    size_t node_end[EK_MAX_NODES]; /* bytes of the block up to the end of each NUMA node's; of the last: block_bytes */
    ek_linear_parts *parts;        /* of the matrices, on several nodes */
    struct ek_packed *packed;      /* the file that block is mapped from; NULL: memory of its own */
    ek_source *source;             /* kept open while a table lies in it */
    size_t mapped_bytes;
} ek_weights;

/* The matrix that logits are made with. */
static inline const ek_linear *ek_weights_head(const ek_weights *w)
{
    return w->head.n ? &w->head : &w->embed;
}

/* Layers that prompt rows without wanted logits run in full. */
static inline int ek_prompt_layers(const ek_config *c)
{
    return c->first_shared - 1;
}

/* One weight on its way into memory. */
typedef struct ek_item {
    char name[144];            /* of the weight; of the matrix for an expert ("….3") */
    int layer;                 /* -1: of no layer */
    ek_matrix_role role;       /* of a matrix */
    ek_linear *matrix;         /* either a matrix */
    float **vector;            /* or a vector: data.n is 1 */
    ek_embedding_table *table; /* or a table that stays in the file */
    ek_weight_data data;       /* without planes: synthetic */
} ek_item;

typedef struct ek_items {
    ek_item *item;
    int n;
} ek_items;

/* Every weight of a configuration, as the source has it; fails as the source does. Sets own_head: whether the source
 * has a head that differs from the embedding, whatever the configuration says; one that says so and has none is
 * EFORMAT. */
ek_err ek_items_bind(ek_items *list, ek_weights *w, ek_config *c, ek_source *from);
/* The same for random weights: bits 0 gives bf16. */
void ek_items_invent(ek_items *list, ek_weights *w, const ek_config *c, int bits);
void ek_items_fini(ek_items *list);

typedef struct ek_pack_opts {
    unsigned cpu;
    bool exact;
    bool quantise; /* float matrices to 8 bits: ops/weights/quantised_type.h */
    ek_activations activations;
    uint64_t seed; /* synthetic */
    double limit;  /* bytes; 0: what the system has */
    bool quiet;    /* neither a line in the log nor progress */
    ek_pool *pool;
    const char *packed_dir; /* folder of packed weights (model/weights/packed.h); NULL: none is kept */
    const char *packed_of;  /* with it: where the items lie, a file or folder, as ek_packed_open has it */
} ek_pack_opts;

/* For `quantise`, before the plan: float matrices are packed as 8-bit codes, except matrices whose rows are not a
 * multiple of 32. Vectors, and tables that stay in the file, keep their values. */
void ek_items_quantise(ek_items *list);
/* Shapes and kernels of all matrices; sets block_bytes and mapped_bytes of w, takes no memory. Vectors that there are
 * are not NULL from then on. */
ek_err ek_items_plan(const ek_items *list, ek_weights *w, const ek_pack_opts *o);
/* After that: fills one block. Logs the memory first; ENOMEM with both numbers. */
ek_err ek_items_pack(const ek_items *list, ek_weights *w, const ek_pack_opts *o);
/* The rows [first, first + n) of a matrix that are to be packed; first is the beginning of a panel. */
typedef struct ek_rows_wanted {
    void (*of)(const void *arg, const ek_item *it, int *first, int *n);
    const void *arg;
} ek_rows_wanted;

/* Packs some of the items and replaces the earlier packing: all items of layers [first, end), the vectors of layer
 * `end`, and the items outside layers (the table of embeddings only if `embed` is set). rows (NULL: all) selects the
 * rows of each matrix; other panels get no memory, and a matrix without rows is absent. packed_dir is read only if
 * every row of every item is selected. */
ek_err ek_items_pack_layers(const ek_items *list, ek_weights *w, const ek_pack_opts *o, int first, int end, bool embed,
                            const ek_rows_wanted *rows);

/* Synthetic values: element i of NAME is a hash of (seed, NAME, i). */
void ek_invent_floats(float *out, const ek_item *it, uint64_t seed, int64_t first, int64_t n);
/* Rows [row, row + n) of a matrix as a file would hold them, of BF16 or MLX affine with BF16 scales,
 * made in temp: ek_invent_bytes of memory, 64-byte aligned. */
ek_weight_data ek_invent_rows(const ek_item *it, uint64_t seed, int row, int n, void *temp);
size_t ek_invent_bytes(const ek_item *it, int n);

void ek_weights_release(ek_weights *w); /* the packed weights alone */
void ek_weights_fini(ek_weights *w);

/* Numbers in all weights of a model of this configuration, embeddings and experts included. */
uint64_t ek_weights_count(const ek_config *config);

#endif
