/* What is said of a model that devices have no room for: what it takes, what they have, and what would hold it. */
#ifndef EK_GPU_RANKS_REFUSE_H
#define EK_GPU_RANKS_REFUSE_H

#include "gpu/ranks/plan.h"

/* For o->n devices whose ek_ranks_plan gave ENOMEM, with its arguments: ENOMEM with one sentence. */
ek_err ek_ranks_refuse(ek_model *m, ek_cuda *const *c, const double *room, const ek_ranks_opts *o);

#endif
