/* Changes of held pages as vLLM's consumers read them: msgpack, [time, [event, …], 0]. Pure.
 *
 * BlockStored: pages that follow each other make one event with several hashes. Hashes have 8 bytes on the wire
 * whatever their value, because llm-d takes no shorter ones. There are no groups: a page is told of when all that a
 * prompt needs to begin behind it is held. */
#ifndef EK_SERVE_EVENTS_BATCH_H
#define EK_SERVE_EVENTS_BATCH_H

#include "base/buf.h"
#include "cache/held.h"

typedef struct ek_events_form {
    bool arrays; /* events as lists, in the order that vLLM had before it wrote maps; for consumers of that time */
} ek_events_form;

/* Appends one batch. time: seconds since 1970. clear: an AllBlocksCleared comes first. n may be 0. */
void ek_events_write(ek_buf *out, const ek_events_form *form, double time, bool clear, const ek_held_change *change,
                     int n);

#endif
