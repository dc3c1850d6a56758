/* What lies where, so that a step and all else beside the weights has room: from sizes alone, before anything is taken.
 */
#ifndef EK_GPU_RANKS_PLAN_H
#define EK_GPU_RANKS_PLAN_H

#include "cuda/driver.h"
#include "gpu/ranks/opts.h"

/* Bytes of a device that has a part. */
typedef struct ek_ranks_kept {
    double weights, table; /* as they are laid out there; the table of per-layer embeddings, where it lies there */
    double step, keys;     /* of the largest step, a drafter's with it; of keys and values at least; 0: not known */
    double drafter, towers;
} ek_ranks_kept;

/* Where m lies on o->n devices that have `room` bytes each, by ek_place_by, so that the weights leave what o->beside
 * takes. EK_SPLIT_AUTO: outputs where ek_stage_prefers_outputs, all devices reach each other (o->apart), the CPU has no
 * part (o->host) and the model, and the drafter, can be cut for so many and fit; else layers. kept: of those that have
 * a part, by their number among those given. c: the devices; of m only sizes are read. ENOMEM: ek_ranks_refuse says
 * why. */
ek_err ek_ranks_plan(ek_place *out, ek_ranks_kept *kept, ek_model *m, ek_cuda *const *c, const double *room,
                     const ek_ranks_opts *o);

/* The same on devices that have room for anything, so that layers take about as long on each; with the CPU, where it
 * has all that it can. o->split is not AUTO. */
ek_err ek_ranks_measure(ek_place *out, ek_ranks_kept *kept, ek_model *m, ek_cuda *const *c, const ek_ranks_opts *o);

/* What keys and values may take of `left` bytes that weights and a drafter's leave. */
double ek_ranks_keys_within(const ek_ranks_kept *k, double left);

/* Of the bytes of a page what `own` is at most. */
double ek_ranks_part_of_pages(const ek_kv_layout *l, const size_t own[EK_PAGE_KINDS]);

/* Keys and values beside the rest, on the device that holds fewest requests. */
typedef struct ek_ranks_requests {
    int n;
    double left, each; /* bytes for all of them, and of one */
} ek_ranks_requests;

/* Of requests of ctx tokens, where p and kept are a plan's. */
ek_ranks_requests ek_ranks_count_requests(const ek_place *p, const ek_ranks_kept *kept, const ek_model *m,
                                          const double *room, int ctx);

#endif
