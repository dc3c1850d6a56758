/* The weights of a model as the forward pass reads them, and how they are loaded. A rule (bind.c) gives a weight's
 * name, role, shape and place in ek_weights. A rule and a source give an item. Items are laid out in one block of
 * memory and packed into it. */
#ifndef EK_MODEL_WEIGHTS_H
#define EK_MODEL_WEIGHTS_H

#include "base/alloc.h"
#include "base/file.h"
#include "model/config/config.h"
#include "model/weights/role.h"
#include "model/source/source.h"
#include "ops/linear/linear.h"

/* An embedding table that stays in the file; a row is decoded when a token needs it. */
typedef struct ek_embedding_table {
    ek_weight_data data; /* without planes: synthetic */
    uint64_t seed;
} ek_embedding_table;

/* out[0..n) = elements [first, first + n) of a row. */
void ek_embedding_row(const ek_embedding_table *t, int row, int first, int n, float *out);

typedef struct ek_layer_weights {
    ek_linear q, k, v, o; /* k, v: n is 0 if the layer has none */
    ek_linear gate, up, down;
    ek_linear router;
    ek_linear *expert_gate, *expert_up, *expert_down; /* n_experts each */
    ek_linear per_layer_gate, per_layer_proj;
    float *input_norm, *q_norm, *k_norm, *post_attention_norm, *pre_mlp_norm, *post_mlp_norm;
    float *post_mlp_norm_1, *pre_mlp_norm_2, *post_mlp_norm_2, *router_scale, *expert_scale;
    float *post_per_layer_norm, *scalar;
} ek_layer_weights;

typedef struct ek_weights {
    ek_linear embed; /* for lookups, and for logits if the model has no own head */
    ek_linear head;  /* n is 0: the head is embed */
    float *norm, *per_layer_norm;
    /* per_layer_model_projection, divided by rows: the rows for layers before the last owner of keys and values, which
     * every prompt row runs, and the rest. */
    ek_linear per_layer_head, per_layer_tail;
    ek_embedding_table per_layer_embed;
    ek_layer_weights layer[EK_MAX_LAYERS];
    ek_linear *experts; /* of all layers */
    /* Drafters only. */
    ek_linear pre_projection, post_projection, centroids;
    int32_t *token_ordering; /* owned; [vocab_size]: centroid c has the tokens at [c n, (c + 1) n) */
    uint8_t *block;          /* writable only during packing */
    size_t block_bytes;
    size_t node_end[EK_MAX_NODES]; /* end of each NUMA node's bytes in block; the last is block_bytes */
    ek_linear_parts *parts;        /* parts of the matrices, with several nodes */
    struct ek_packed *packed;      /* the file that block is mapped from; NULL: block is allocated */
    ek_source *source;             /* open while a table lies in it */
    size_t mapped_bytes;
} ek_weights;

/* The matrix for logits. */
static inline const ek_linear *ek_weights_head(const ek_weights *w)
{
    return w->head.n ? &w->head : &w->embed;
}

/* Number of layers that prompt rows without logits run in full. */
static inline int ek_prompt_layers(const ek_config *c)
{
    return c->first_shared - 1;
}

/* A weight before and while it is loaded. */
typedef struct ek_item {
    char name[144];            /* of the weight; for an expert the matrix's with its number ("….3") */
    int layer;                 /* -1: outside layers */
    ek_matrix_role role;       /* only for a matrix */
    ek_linear *matrix;         /* either a matrix */
    float **vector;            /* or a vector; data.n is 1 */
    ek_embedding_table *table; /* or a table that stays in the file */
    ek_weight_data data;       /* without planes: synthetic */
} ek_item;

typedef struct ek_items {
    ek_item *item;
    int n;
} ek_items;

/* Lists every weight of a configuration as the source stores it; fails like the source. Sets own_head: whether the
 * source has a head that differs from the embedding, whatever the configuration says. EFORMAT if the configuration says
 * so and there is none. */
ek_err ek_items_bind(ek_items *list, ek_weights *w, ek_config *c, ek_source *from);
/* Lists random weights instead; bits 0: bf16. */
void ek_items_invent(ek_items *list, ek_weights *w, const ek_config *c, int bits);
void ek_items_fini(ek_items *list);

typedef struct ek_pack_opts {
    unsigned cpu;
    bool exact;
    bool quantise; /* float matrices become 8-bit codes: ops/weights/quantised_type.h */
    ek_activations activations;
    uint64_t seed; /* for synthetic weights */
    double limit;  /* maximum bytes; 0: the memory that the system has available */
    bool quiet;    /* no log lines and no progress */
    ek_pool *pool;
    const char *packed_dir; /* folder of packed weights; NULL: none */
    const char *packed_of;  /* with packed_dir: the checkpoint, a file or folder, for ek_packed_open */
} ek_pack_opts;

/* For `quantise`, before the plan: float matrices become 8-bit codes, except matrices whose row length is not a
 * multiple of 32. Vectors, and tables that stay in the file, keep their values. */
void ek_items_quantise(ek_items *list);
/* Plans the shapes and kernels of all matrices; sets block_bytes and mapped_bytes of w, and allocates nothing. From
 * then on the pointers of existing vectors are not NULL. */
ek_err ek_items_plan(const ek_items *list, ek_weights *w, const ek_pack_opts *o);
/* After the plan: fills one block. Logs the needed memory first; ENOMEM with both numbers. */
ek_err ek_items_pack(const ek_items *list, ek_weights *w, const ek_pack_opts *o);
/* Selects the rows [first, first + n) of a matrix for packing; first is the beginning of a panel. */
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
/* Rows [row, row + n) of a matrix as a file would hold them, BF16 or MLX affine with BF16 scales, made in temp:
 * ek_invent_bytes of memory, 64-byte aligned. */
ek_weight_data ek_invent_rows(const ek_item *it, uint64_t seed, int row, int n, void *temp);
size_t ek_invent_bytes(const ek_item *it, int n);

void ek_weights_release(ek_weights *w); /* frees only the packed weights */
void ek_weights_fini(ek_weights *w);

/* Number of parameters of a model of this configuration, embeddings and experts included. */
uint64_t ek_weights_count(const ek_config *config);

/* --- Packed weights in a file, which the next start maps instead of packing the checkpoint again: one file for the
 * text model and one per tower.
 *
 * The file's name is a hash of everything that its bytes depend on: this build's layout, the processor's kernels, each
 * matrix's form, and the checkpoint's files by path, inode, size and times of change. A file is written under another
 * name and renamed when it is complete; its bytes are checked by hash before use. A changed checkpoint, another version
 * of the program and a damaged file therefore lead to new packing, never to wrong weights. */
typedef struct ek_packed {
    char *path;   /* owned; NULL: unused */
    ek_map map;   /* the file once found, mapped for the model's life */
    size_t first; /* offset of the weights in the file, in bytes */
} ek_packed;

/* Names the file in folder `dir` (created if missing) for the planned items of the checkpoint at `checkpoint`. EIO if
 * the folder cannot be created or the checkpoint's files cannot be examined. */
ek_err ek_packed_open(ek_packed *p, const char *dir, const char *checkpoint, const ek_items *list, const ek_weights *w,
                      const ek_pack_opts *o);
/* Maps and checks the file. False if there is none, or if it is unusable, which is logged. */
bool ek_packed_find(ek_packed *p, const ek_weights *w, ek_pool *pool);
/* Writes the file. A failure (a full disk) is logged and leaves no file. A page of the page cache lies on the NUMA node
 * of the thread that first wrote or read it; both happen on the node whose panels the page holds. */
void ek_packed_write(const ek_packed *p, const ek_weights *w, ek_pool *pool);
void ek_packed_close(ek_packed *p); /* unmaps */

#endif
