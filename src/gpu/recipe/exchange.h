/* Exchanges between devices that each compute a part of a layer's outputs: every device gets the parts of all others.
 *
 * A device's recipe is written as if it computed all outputs; these functions add the offset of its part in a row and
 * the exchange of parts. On a single device the part is the whole row, and nothing is exchanged.
 *
 * The other devices read a part in place. Its memory is therefore not written again before a later exchange has ended,
 * and two consecutive exchanges never use one buffer (cuda/exchange_args.h). */
#ifndef EK_GPU_RECIPE_EXCHANGE_H
#define EK_GPU_RECIPE_EXCHANGE_H

#include "cuda/exchange_args.h"
#include "gpu/recipe/linear.h"

struct ek_gpu_exchange {
    ek_cuda_exchange_args a;
    int n, n_spans; /* pieces; spans of all */
};

static inline bool ek_gpu_is_sharded(const ek_gpu_run *x)
{
    return x->g->share.shard.ranks > 0;
}

/* Each device's part of some units, and this device's part (the first device's, if they are not divided). */
typedef struct ek_gpu_parts {
    ek_gpu_range of[EK_CUDA_EXCHANGE_RANKS];
} ek_gpu_parts;

static inline ek_gpu_range ek_gpu_part_here(const ek_gpu_run *x, const ek_gpu_parts *p)
{
    return p->of[ek_gpu_is_sharded(x) ? x->g->share.shard.rank : 0]; /* if the split is by layers, ranks count too */
}

/* The parts of n outputs, of the inputs of m, of the query heads of layer l. */
ek_gpu_parts ek_gpu_outputs_of(const ek_gpu_run *x, int n);
ek_gpu_parts ek_gpu_inputs_of(const ek_gpu_run *x, const ek_gpu_matrix *m);
ek_gpu_parts ek_gpu_queries_of(const ek_gpu_run *x, const ek_layer_config *l);

/* y, rows of floats, from the part's first element on. */
static inline CUdeviceptr ek_gpu_at_part(CUdeviceptr y, ek_gpu_range p)
{
    return y + sizeof(float) * (size_t)p.first;
}

/* Whether the columns that m reads are sent as records: they are whole groups, of a size that all kernels can write.
 * Otherwise they are sent as floats. */
bool ek_gpu_goes_as_records(const ek_gpu_run *x, const ek_gpu_matrix *m);
/* Records of n rows of m's inputs at `at`, and the part of them that this device writes. */
ek_gpu_input ek_gpu_records_for(const ek_gpu_matrix *m, CUdeviceptr at, int n);
ek_cuda_acts ek_gpu_part_of_records(const ek_cuda_acts *all, ek_gpu_range p);

/* Adds a piece: floats of n rows, ld elements each, or records, at that place of every ek_gpu_run (offsetof). */
void ek_gpu_exchange_floats(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, int64_t ld, const ek_gpu_parts *p,
                            int n);
void ek_gpu_exchange_records(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, const ek_gpu_input *in,
                             const ek_gpu_matrix *m, const ek_gpu_parts *p);
void ek_gpu_write_exchange(ek_gpu_writer *w, ek_gpu_exchange *e);

/* Exchanges the rows of hidden_size at x->buf.y. Each device has computed its outputs of them. */
void ek_gpu_write_exchange_y(ek_gpu_writer *w, int n);
/* Whether all devices may compute n rows of y whole instead, which is faster for few rows. The exchanges before and
 * after y then have separate landings. */
bool ek_gpu_skips_exchange_y(ek_gpu_writer *w, int n);
/* The rows of logits. */
void ek_gpu_write_exchange_logits(ek_gpu_writer *w, int n);

#endif
