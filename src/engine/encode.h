/* Encodes pictures and sounds of running requests. The work is divided into slices, one between two steps. A slice
 * takes no longer than a step of the default chunk, so other requests get their tokens meanwhile. A running request
 * computes its prompt up to the first part without features and waits there. It holds the features of the parts that
 * the next steps can reach, and releases them once their rows are computed. Its memory is therefore bounded for any
 * number of pictures. Running requests take turns, one picture each. Slices, times and other requests never change a
 * bit of the features (model/tower). Engine thread only. */
#ifndef EK_ENGINE_ENCODE_H
#define EK_ENGINE_ENCODE_H

#include "engine/state.h"

/* open: call it after the step's memory was opened. close: call it before that is closed. */
void ek_encode_open(ek_engine *e);
void ek_encode_close(ek_engine *e);

/* Before a plan: gives every running request the existing features for its next rows. */
void ek_encode_supply(ek_engine *e);
/* Encodes one slice if a running request lacks features; false if there was nothing to encode. If a picture cannot be
 * encoded, *failed is its request, which has to end, with the error in err.h. */
bool ek_encode_slice(ek_engine *e, ek_request **failed, ek_err *err);
/* r stops running, so its features are released. */
void ek_encode_release(ek_engine *e, ek_request *r);
/* Whether the running encoding is for r. */
bool ek_encode_is_for(const ek_engine *e, const ek_request *r);

#endif
