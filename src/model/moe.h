/* Mixture of experts: the feed-forward of a layer that runs top-k experts per row. */
#ifndef EK_MODEL_MOE_H
#define EK_MODEL_MOE_H

#include "model/pass.h"

/* s->sum = the weighted outputs of the experts that each row's router chose, from s->h. Uses
 * s->x and the acts memory. */
void ek_run_experts(ek_pass *p);

/* The same of layer i alone, for a device that has the rest of it: h, n rows of hidden_size behind attention, in order;
 * their sums to `sum` likewise. n is at most the scratch memory's rows. The layer's router and experts are packed. */
void ek_model_run_experts(const ek_model *m, ek_scratch *s, int i, const float *h, int n, float *sum);

#endif
