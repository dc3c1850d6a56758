/* Short names of models on the Hub (names.def): "e2b", "26b:q8". */
#ifndef EK_HUB_NAMES_H
#define EK_HUB_NAMES_H

#include "base/buf.h"

typedef struct ek_hub_short {
    const char *name;  /* "e2b:q8" */
    const char *model; /* what ek_hub_name_parse takes */
    double gigabytes;  /* to fetch, about */
    const char *text;
} ek_hub_short;

extern const ek_hub_short ek_hub_shorts[];
extern const int ek_hub_n_shorts;

/* The row of a name, in any case; NULL where it is none. */
const ek_hub_short *ek_hub_short_find(const char *name);

/* A few names for somebody who wrote something else: those that have the text or a part of it in them, or else the
 * sizes' own: "e2b, e4b, 12b, 26b, 31b". Appended to out. */
void ek_hub_short_suggest(ek_buf *out, const char *text);

#endif
