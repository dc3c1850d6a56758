/* Before the layers: a row's embedding, its rotation, and what each layer will want of its token. */
#ifndef EK_MODEL_EMBED_H
#define EK_MODEL_EMBED_H

#include "model/pass.h"

/* From tokens and embeddings to s->h, s->x normed for the first layer, rotations and per-layer inputs. */
void ek_embed_rows(const ek_pass *p);

#endif
