/* Inside src/model/tower: vision towers of the published shapes with random weights made in memory. */
#ifndef EK_MODEL_TOWER_SYNTHETIC_H
#define EK_MODEL_TOWER_SYNTHETIC_H

#include "model/tower/source/tower_source.h"

/* name: e2b, e4b, 12b, 26b or 31b; ENOTFOUND lists them. They see, and do not hear. */
ek_err ek_tower_synthetic_open(ek_tower_source **out, const char *name);

#endif
