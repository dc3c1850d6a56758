/* The outputs of a model's matrices that one of several devices computes: whole heads, whole groups of columns, whole
 * panels of rows. A device computes an output as it would alone, so the number of devices cannot change a bit.
 *
 *     q                 its heads                 k, v              the KV heads that these read
 *     o, down           a part of hidden_size     gate, up          a part of the columns between them
 *     head              a part of the vocabulary  experts           the same parts of every expert's
 *
 * Every device has all other weights and computes them alike: norms, the router, per-layer inputs, the table of
 * embeddings. A device with enough memory has all of o, too, and computes few rows whole: this takes less time than an
 * exchange. */
#ifndef EK_GPU_WEIGHTS_SHARD_H
#define EK_GPU_WEIGHTS_SHARD_H

#include "model/pass.h"

/* Device `rank` of `ranks`; ranks 0: it has all. whole_o: every device has all of o. */
typedef struct ek_gpu_shard {
    int rank, ranks;
    bool whole_o;
} ek_gpu_shard;

/* Outputs [first, first + n). */
typedef struct ek_gpu_range {
    int first, n;
} ek_gpu_range;

/* Heads and KV heads of layers of a kind. Every KV head here has as many of the heads here. Where there are fewer KV
 * heads than devices, some have the same one. */
typedef struct ek_gpu_head_part {
    ek_gpu_range q, kv;
} ek_gpu_head_part;

ek_gpu_head_part ek_gpu_heads_here(const ek_gpu_shard *shard, const ek_config *c, const ek_layer_config *l);
/* Of the columns that `next` reads: in whole groups of its activations, where there are enough of them. */
ek_gpu_range ek_gpu_columns_here(const ek_gpu_shard *shard, const ek_linear *next);
bool ek_gpu_columns_in_groups(const ek_gpu_shard *shard, const ek_linear *next);
/* Of the outputs of a matrix of n. */
ek_gpu_range ek_gpu_outputs_here(const ek_gpu_shard *shard, int n);

/* Of any matrix of layer i (-1: of none), as the device keeps it. */
ek_gpu_range ek_gpu_rows_here(const ek_gpu_shard *shard, const ek_model *m, int i, const ek_linear *matrix);

/* The same as ek_rows_wanted (model/pass.h) asks for them; arg: ek_gpu_wanted. */
typedef struct ek_gpu_wanted {
    const ek_model *m;
    ek_gpu_shard shard;
    int host_experts; /* of layers in front of it no router and no experts */
} ek_gpu_wanted;

void ek_gpu_rows_wanted(const void *arg, const ek_item *it, int *first, int *n);
/* What that leaves out: routers and experts alone. arg is not read. */
void ek_gpu_experts_wanted(const void *arg, const ek_item *it, int *first, int *n);

/* EUNSUPPORTED with the reason where a model cannot be cut for so many devices. */
ek_err ek_gpu_shard_check(const ek_model *m, int ranks);

/* The same of a drafter, which is whole on a device and reads the keys of all. */
ek_err ek_gpu_shard_check_drafter(const ek_model *drafter);

/* Bytes of the weights that a device has, about. */
double ek_gpu_shard_bytes(const ek_model *m, const ek_gpu_shard *shard);

/* Of a page of each kind what the layers of a share keep, and of those the KV heads here: where it begins and its
 * bytes. */
void ek_gpu_pages_here(size_t at[EK_PAGE_KINDS], size_t bytes[EK_PAGE_KINDS], const ek_model *m,
                       const ek_model_share *s, const ek_gpu_shard *shard);

/* Of bytes that all KV heads of a layer take, those of the KV heads here: blocks, and where they begin in a page. */
static inline size_t ek_gpu_kv_here(const ek_gpu_head_part *here, const ek_layer_config *l, size_t bytes)
{
    return bytes / (size_t)l->n_kv_heads * (size_t)here->kv.n;
}

#endif
