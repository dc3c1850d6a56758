/* Attention: the first half of a layer, from heads to the residual behind them. */
#ifndef EK_MODEL_ATTENTION_H
#define EK_MODEL_ATTENTION_H

#include "model/pass.h"

/* From s->x, normed for the layer and quantised for p->reads, to s->h with the layer's attention added and s->x normed
 * and quantised for the feed-forward. A layer that owns keys and values stores those of the rows. The first layer
 * behind those that every row runs drops the rows that want no logits; with none left, p->n is 0 and nothing more is
 * done. */
void ek_run_attention(ek_pass *p);

#endif
