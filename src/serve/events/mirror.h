/* The pages that are held according to all batches so far, in the order in which they came: a page's parent stands
 * before it. One thread. */
#ifndef EK_SERVE_EVENTS_MIRROR_H
#define EK_SERVE_EVENTS_MIRROR_H

#include "cache/held.h"

/* Zero-initialise. */
typedef struct ek_mirror {
    struct ek_mirror_entry *entry;
    int n, cap;              /* pages; entries */
    int first, last, unused; /* entry + 1; 0: none */
    int *bucket;             /* entry + 1 */
    unsigned n_buckets;      /* a power of two, or 0 */
} ek_mirror;

void ek_mirror_apply(ek_mirror *m, const ek_held_change *c); /* takes over the page's reference of its salt */
/* Copies up to max pages behind `at`, 0 for the beginning, which becomes the last one's; the salts' references stay
 * with m.
 */
int ek_mirror_list(const ek_mirror *m, int *at, ek_held_change *out, int max);
void ek_mirror_fini(ek_mirror *m);

#endif
