/* Mixture of experts: the feed-forward of a layer that runs top-k experts per row. */
#ifndef EK_MODEL_MOE_H
#define EK_MODEL_MOE_H

#include "model/pass.h"

/* s->sum = the weighted outputs of the experts that each row's router chose, from s->h. Uses
 * s->x and the acts memory. */
void ek_run_experts(ek_pass *p);

#endif
