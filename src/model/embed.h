/* The work before the layers: embeddings, rotations and per-layer inputs of all rows. */
#ifndef EK_MODEL_EMBED_H
#define EK_MODEL_EMBED_H

#include "model/pass.h"

/* From tokens and embeddings to s->h, s->x normed for the first layer, rotations and per-layer inputs. */
void ek_embed_rows(const ek_pass *p);

#endif
