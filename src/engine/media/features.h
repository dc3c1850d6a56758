/* The rows that towers computed for pictures and sounds, kept for prompts that contain them again.
 *
 * Features depend on the content and the towers alone, so an entry serves every request and any position. Entries are
 * found by the content's digest (an engine has one set of towers). Entries that a request holds stay; the least
 * recently used others are evicted at the byte limit. Engine thread only. */
#ifndef EK_ENGINE_MEDIA_FEATURES_H
#define EK_ENGINE_MEDIA_FEATURES_H

#include <stdbool.h>

#include "media/part/part.h"

typedef struct ek_feature {
    uint8_t digest[32];
    bool is_sound; /* an image and a frame of the same pixels have the same features */
    int tokens;
    float *rows; /* tokens x hidden_size, as they enter the first layer */
    size_t bytes;
    uint64_t maker, salt;             /* the request that it was made for, and its cache_salt */
    int holders;                      /* requests, and the encoding that fills it */
    struct ek_feature *newer, *older; /* all entries, by use */
} ek_feature;

typedef struct ek_features {
    int hidden_size;
    double limit; /* bytes of entries without a holder */
    double idle_bytes, bytes;
    ek_feature *newest, *oldest;
    uint64_t evicted; /* entries */
} ek_features;

void ek_features_init(ek_features *f, int hidden_size, double limit);
void ek_features_fini(ek_features *f); /* nobody holds any */

bool ek_feature_is_of(const ek_feature *x, const ek_media *m);

/* The entry of a content, which the caller then holds, or NULL. */
ek_feature *ek_features_find(ek_features *f, const ek_media *m);
/* Takes memory for the rows of a content that has no entry. The caller holds the new entry, and no request finds it
 * yet. ENOMEM. */
ek_err ek_features_make(ek_features *f, const ek_media *m, ek_feature **out);
/* The rows are written: the entry can be found from now on. */
void ek_features_add(ek_features *f, ek_feature *x);
/* Releases the caller's hold. An entry that was never added is freed. Others stay, as far as the limit allows. */
void ek_features_drop(ek_features *f, ek_feature *x);

#endif
