/* What is said of a model that devices have no room for: what it takes, what they have, and what would hold it. */
#ifndef EK_GPU_RANKS_REFUSE_H
#define EK_GPU_RANKS_REFUSE_H

#include "base/buf.h"
#include "gpu/ranks/plan.h"

/* For o->n devices whose ek_ranks_plan gave ENOMEM, with its arguments: ENOMEM with one sentence. */
ek_err ek_ranks_refuse(ek_model *m, ek_cuda *const *c, const double *room, const ek_ranks_opts *o);

/* Its second: "2 such devices would hold it (--device cuda:0-1), or --device cuda:0,cpu leaves 14 of 60 layers to the
 * CPU". Nothing, if there is no way. */
void ek_ranks_advise(ek_buf *out, ek_model *m, ek_cuda *const *c, const double *room, const ek_ranks_opts *o);

#endif
