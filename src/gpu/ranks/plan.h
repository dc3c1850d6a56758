/* What lies where, so that a step and all else beside the weights has room: from sizes alone, before anything is taken.
 */
#ifndef EK_GPU_RANKS_PLAN_H
#define EK_GPU_RANKS_PLAN_H

#include "cuda/driver.h"
#include "gpu/ranks/need.h"

/* Where m lies on o->n devices that have `room` bytes each, by ek_place_by, so that the weights leave what o->beside
 * takes. EK_SPLIT_AUTO: outputs where ek_stage_prefers_outputs, all devices reach each other (o->apart), the CPU has no
 * part (o->host) and the model, and the drafter, can be cut for so many and fit; else layers. kept: of those that have
 * a part, by their number among those given. c: the devices; of m only sizes are read. ENOMEM: ek_ranks_refuse says
 * why. */
ek_err ek_ranks_plan(ek_place *out, ek_ranks_kept *kept, ek_model *m, ek_cuda *const *c, const double *room,
                     const ek_ranks_opts *o);

/* What keys and values may take of `left` bytes that weights and a drafter's leave. */
double ek_ranks_keys_within(const ek_ranks_kept *k, double left);

/* Keys and values beside the rest, on the device that holds fewest requests. */
typedef struct ek_ranks_requests {
    int n;
    double left, each; /* bytes for all of them, and of one */
} ek_ranks_requests;

/* Of requests of ctx tokens, where p and kept are a plan's. */
ek_ranks_requests ek_ranks_count_requests(const ek_place *p, const ek_ranks_kept *kept, const ek_model *m,
                                          const double *room, int ctx);

#endif
