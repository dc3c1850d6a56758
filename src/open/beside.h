/* What an engine will ask of devices beside the model's weights, before it is known how many requests it has. */
#ifndef EK_OPEN_BESIDE_H
#define EK_OPEN_BESIDE_H

#include "gpu/ranks/opts.h"
#include "model/tower/tower.h"
#include "open/opts.h"

/* Rows of a step's prompts on a device where nobody says it; host: the CPU has layers, or experts of some. */
int ek_open_chunk(const ek_model *m, bool host);

/* At most. t: NULL without pictures and sounds; d: NULL without a drafter model. alone: of one device that takes what
 * is free, at least: where nobody says how many requests it has, and how long, it has as many as there is room for. */
ek_ranks_beside ek_open_beside(const ek_model *m, ek_towers *t, const ek_drafter *d, const ek_open_opts *o, bool alone);

#endif
