/* A model on a device: its state, the upload of its weights, and launches of kernels by name. */
#ifndef EK_GPU_WEIGHTS_WEIGHTS_H
#define EK_GPU_WEIGHTS_WEIGHTS_H

#include "cuda/memory.h"
#include "cuda/product/launch.h"
#include "cuda/product/layout.h"
#include "gpu/weights/shard.h"
#include "model/drafter.h"
#include "model/pass.h"

typedef struct ek_gpu ek_gpu;

typedef struct ek_gpu_matrix {
    ek_cuda_linear l; /* n 0: the layer has none */
    CUdeviceptr at;
    bool invented; /* a synthetic model's table: values are computed from seed (model/embed.c); l has only its shape */
    uint64_t seed;
} ek_gpu_matrix;

typedef struct ek_gpu_layer {
    ek_gpu_matrix q, k, v, o, gate, up, down, router, per_layer_gate, per_layer_proj;
    ek_gpu_matrix o_part;                              /* the device's outputs of o: a part of o, or all of it */
    ek_gpu_matrix expert_gate, expert_up, expert_down; /* of expert 0; the others follow, l.bytes apart */
    CUdeviceptr input_norm, q_norm, k_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm;
    CUdeviceptr post_mlp_norm_1, pre_mlp_norm_2, post_mlp_norm_2, router_scale, expert_scale;
    CUdeviceptr post_per_layer_norm, scalar;
} ek_gpu_layer;

typedef struct ek_gpu_weights {
    ek_gpu_matrix embed, per_layer_head, per_layer_tail;
    ek_gpu_matrix own_head; /* a head besides embed; l.n 0: none */
    ek_gpu_matrix head;     /* the device's outputs of ek_gpu_head, a part of it */
    ek_gpu_matrix table;    /* per-layer embeddings, in memory of their own or synthetic; n 0: they stay on the host */
    ek_gpu_matrix pre_projection, post_projection, centroids; /* of a drafter */
    CUdeviceptr ordering;
    CUdeviceptr norm, per_layer_norm, rope[EK_KIND_COUNT], suppress;
    ek_gpu_layer layer[EK_MAX_LAYERS];
} ek_gpu_weights;

/* The whole matrix for logits. */
static inline const ek_gpu_matrix *ek_gpu_head(const ek_gpu_weights *w)
{
    return w->own_head.l.n ? &w->own_head : &w->embed;
}

/* A device's part of the model: its layers, and their part of a page, which is contiguous because the layers are. With
 * several devices a part of the layers; for a drafter the part is the target's. With shards it has some outputs of all
 * layers, and its KV heads of a page, layer by layer. */
typedef struct ek_gpu_share {
    int first, end;
    bool embed;       /* it looks up embeddings */
    bool head;        /* it computes logits */
    int host_experts; /* layers [first, host_experts) have router and experts on the host (gpu/step/step.h) */
    ek_gpu_shard shard;
    size_t kv_at[EK_PAGE_KINDS], kv_bytes[EK_PAGE_KINDS];
} ek_gpu_share;

static inline bool ek_gpu_experts_are_here(const ek_gpu_share *s, int layer)
{
    return layer >= s->host_experts;
}

enum { EK_GPU_KERNELS = 512, EK_GPU_BLOCKS = 128 }; /* upper bounds */

typedef struct ek_gpu_kernel {
    char name[EK_CUDA_NAME]; /* empty: the entry is free */
    ek_cuda_kernel kernel;   /* function NULL: not looked up yet, or not allowed that much shared memory */
    size_t shared;
} ek_gpu_kernel;

struct ek_gpu {
    ek_cuda *c;
    ek_model *m;
    ek_gpu_share share;
    ek_gpu_weights w;
    CUdeviceptr block[EK_GPU_BLOCKS]; /* all weights, in one block, or in several if the device bounds a block */
    size_t block_bytes[EK_GPU_BLOCKS], bytes;
    int n_blocks;
    double max_bytes;                     /* maximum bytes of the device; 0: the free memory */
    double kept_step, kept_keys;          /* bytes planned besides the weights; 0: unknown */
    double kept_rest;                     /* bytes for a drafter's weights and towers */
    int levels, float_levels;             /* depths of the stacks of ek_product_*_tile and of ek_product_*_many */
    ek_gpu_kernel kernel[EK_GPU_KERNELS]; /* hash table by name */
    ek_err err;                           /* the first error of queuing; later launches do nothing */
    double reserved;                      /* bytes that executors leave to towers */
    ek_gpu *drafter;                      /* NULL: none */
    ek_gpu *target;                       /* of a drafter, on the same device */
    ek_err (*prove)(ek_gpu *g, const ek_model *m); /* ek_gpu_driver.prove */
    ek_rope_position position;                     /* of a drafter */
    float draft_cost;
};

/* --- upload */

/* Sets the part of g->m that g holds. */
void ek_gpu_set_share(ek_gpu *g, const ek_model_share *s, ek_gpu_shard shard);
/* Sets own to hold all of d, a drafter for g's model, on g's device. */
void ek_gpu_set_drafter(ek_gpu *own, ek_gpu *g, const ek_drafter *d);
/* Fills only the layouts in g->w, and g->bytes, from the model's sizes; takes no memory. */
ek_err ek_gpu_upload_plan(ek_gpu *g);
/* Fills g->w. Layouts and kernels of all matrices are checked before memory is taken. A deferred model that is not
 * packed is read some layers at a time, and only the wanted rows of matrices (NULL: all); none of its weights stay in
 * host memory. */
ek_err ek_gpu_upload(ek_gpu *g, const ek_rows_wanted *wanted);
/* Device memory that weights of Form Q pass through during the upload: EK_GPU_BUFFER bytes, or a panel if that is more.
 */
enum { EK_GPU_BUFFER = 64 << 20 };

typedef struct ek_gpu_buffer {
    CUdeviceptr at;
    size_t bytes;
} ek_gpu_buffer;

/* Queues the copy of w as panels [first, …) of the matrix at `to` with layout l. */
ek_err ek_gpu_upload_matrix(ek_gpu *g, const ek_cuda_linear *l, const ek_linear *w, CUdeviceptr to, int first,
                            ek_gpu_buffer through);
/* Queues the kernel that lays out n panels of w (Form Q) from `from` as panels [first, first + n) of the matrix at
 * `to`.
 */
ek_err ek_gpu_pack(ek_gpu *g, const ek_cuda_linear *l, const ek_linear *w, CUdeviceptr from, CUdeviceptr to, int first,
                   int n);

/* --- the table of per-layer embeddings (E2B, E4B) */

/* Whether a table of `table` bytes may lie on the device. left: bytes beside the weights, `kept` of them reserved. */
bool ek_gpu_table_fits(double table, double left, double kept);
/* Fills the layout in g->w.table from sizes alone and returns the table's bytes; 0: there is no table, it is computed,
 * or it is larger than the device's largest block. */
double ek_gpu_table_plan(ek_gpu *g);
/* Copies the table, after the weights, if it takes at most a quarter of the remaining memory; else g->w.table stays
 * empty. */
ek_err ek_gpu_table_upload(ek_gpu *g);

/* --- launches by name */

/* The entry of a kernel, valid for the device's life; does not ask the driver. */
ek_gpu_kernel *ek_gpu_kernel_named(ek_gpu *g, const char *name);
/* Queues the kernel with its arguments, which are copied, unless g->err is set. Asks the driver for the kernel the
 * first time, and again when a grid needs more shared memory. */
void ek_gpu_launch_kernel(ek_gpu *g, ek_gpu_kernel *k, ek_cuda_grid grid, const void *args);
void ek_gpu_launch(ek_gpu *g, const char *name, ek_cuda_grid grid, const void *args); /* by name */
/* Keeps a failure in g->err, unless an earlier one is there. */
void ek_gpu_note(ek_gpu *g, ek_err err);

#endif
