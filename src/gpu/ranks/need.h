/* What a model takes of devices, from sizes alone, before anything is taken, and how that is said. */
#ifndef EK_GPU_RANKS_NEED_H
#define EK_GPU_RANKS_NEED_H

#include "base/buf.h"
#include "cuda/driver.h"
#include "gpu/ranks/opts.h"

/* Bytes of a device that has a part. */
typedef struct ek_ranks_kept {
    double weights, table; /* as they are laid out there; the table of per-layer embeddings, where it lies there */
    double step, keys;     /* of the largest step, a drafter's with it; of keys and values at least; 0: not known */
    double drafter, towers;
} ek_ranks_kept;

/* Where m lies on o->n devices that have `room` bytes each for weights: ek_place_by with the options' split. */
ek_err ek_ranks_place_by(ek_place *p, const ek_model *m, const double *room, const ek_ranks_opts *o);

/* Of part i of p, on device c with `room` bytes: what it takes, with what o->beside says of the rest. */
ek_err ek_ranks_keep(ek_ranks_kept *out, const ek_place *p, int i, ek_model *m, ek_cuda *c, double room,
                     const ek_ranks_opts *o);

/* Where m lies on devices that have room for anything, so that layers take about as long on each; with the CPU, where
 * it has all that it can. o->split is not AUTO. */
ek_err ek_ranks_measure(ek_place *out, ek_ranks_kept *kept, ek_model *m, ek_cuda *const *c, const ek_ranks_opts *o);

/* Of the bytes of a page what `own` is at most. */
double ek_ranks_part_of_pages(const ek_kv_layout *l, const size_t own[EK_PAGE_KINDS]);

/* What ek_ranks_refuse says first, of a split that is not AUTO: "the weights need 61.39 GB, a step of 2704
 * rows 2.93 GB and keys and values 3.58 GB, 67.90 GB in all; cuda:0 has room for 64.42 GB". */
void ek_ranks_say_need(ek_buf *out, ek_model *m, ek_cuda *const *c, const double *room, const ek_ranks_opts *o);

#endif
