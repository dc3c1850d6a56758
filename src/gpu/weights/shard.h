/* The outputs of a model's matrices that one of several devices computes: whole heads, whole groups of columns, whole
 * panels of rows. A device computes an output as it would alone, so the number of devices cannot change a bit.
 *
 *     q                 its heads                 k, v              the KV heads that these read
 *     o, down           a part of hidden_size     gate, up          a part of the columns between them
 *     head              a part of the vocabulary  experts           the same parts of every expert's
 *
 * Every device has all other weights and computes the same with them: norms, the router, per-layer inputs, the table of
 * embeddings. A device with enough memory has all of o, too, and computes few rows whole: this takes less time than an
 * exchange. */
#ifndef EK_GPU_WEIGHTS_SHARD_H
#define EK_GPU_WEIGHTS_SHARD_H

#include "model/pass.h"

/* Device `rank` of `ranks`; ranks 0: not divided. whole_o: every device has all of o. */
typedef struct ek_gpu_shard {
    int rank, ranks;
    bool whole_o;
} ek_gpu_shard;

/* Outputs [first, first + n). */
typedef struct ek_gpu_range {
    int first, n;
} ek_gpu_range;

/* Heads and KV heads of a device in layers of a kind. All its KV heads have equally many of its heads. If there are
 * fewer KV heads than devices, some devices have the same one. */
typedef struct ek_gpu_head_part {
    ek_gpu_range q, kv;
} ek_gpu_head_part;

ek_gpu_head_part ek_gpu_heads_here(const ek_gpu_shard *shard, const ek_config *c, const ek_layer_config *l);
/* The device's range of the columns that `next` reads: whole groups of its activations, if there are enough of them. */
ek_gpu_range ek_gpu_columns_here(const ek_gpu_shard *shard, const ek_linear *next);
bool ek_gpu_columns_in_groups(const ek_gpu_shard *shard, const ek_linear *next);
/* The device's range of n outputs of a matrix. */
ek_gpu_range ek_gpu_outputs_here(const ek_gpu_shard *shard, int n);

/* The device's range of any matrix of layer i (-1: outside layers). */
ek_gpu_range ek_gpu_rows_here(const ek_gpu_shard *shard, const ek_model *m, int i, const ek_linear *matrix);

/* The same range as a function for ek_rows_wanted (model/weights/weights.h); arg: ek_gpu_wanted. */
typedef struct ek_gpu_wanted {
    const ek_model *m;
    ek_gpu_shard shard;
    int host_experts; /* layers before this one have no router and no experts here */
} ek_gpu_wanted;

void ek_gpu_rows_wanted(const void *arg, const ek_item *it, int *first, int *n);
/* The complement for the host: only routers and experts. arg is not read. */
void ek_gpu_experts_wanted(const void *arg, const ek_item *it, int *first, int *n);

/* EUNSUPPORTED with the reason if a model cannot be divided among this many devices. */
ek_err ek_gpu_shard_check(const ek_model *m, int ranks);

/* The same for a drafter, which is whole on one device and reads all keys. */
ek_err ek_gpu_shard_check_drafter(const ek_model *drafter);

/* Approximate bytes of a device's weights. */
double ek_gpu_shard_bytes(const ek_model *m, const ek_gpu_shard *shard);

/* For a page of each kind: the offset and bytes of the device's KV heads in the share's layers. */
void ek_gpu_pages_here(size_t at[EK_PAGE_KINDS], size_t bytes[EK_PAGE_KINDS], const ek_model *m,
                       const ek_model_share *s, const ek_gpu_shard *shard);

/* The part of a layer's bytes of all KV heads that belongs to the device's KV heads; for blocks, and for their offsets
 * in a page. */
static inline size_t ek_gpu_kv_here(const ek_gpu_head_part *here, const ek_layer_config *l, size_t bytes)
{
    return bytes / (size_t)l->n_kv_heads * (size_t)here->kv.n;
}

#endif
