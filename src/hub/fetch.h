/* Fetching the blobs of a list of files: inside src/hub. */
#ifndef EK_HUB_FETCH_H
#define EK_HUB_FETCH_H

#include "hub/cache.h"
#include "hub/client.h"
#include "hub/pull.h"

enum { EK_HUB_PIECE = 8 << 20, EK_HUB_MAX_WAIT = 300 };

/* Fetches what is wanted of `files` and not in the cache yet, in order of size: small files first. */
ek_err ek_hub_fetch(ek_client *client, const ek_hub_opts *opts, const ek_hub_cache *cache, const ek_hub_name *name,
                    const ek_hub_files *files);

/* A whole reply of at most limit bytes, with tries. */
ek_err ek_hub_get_text(ek_buf *out, ek_client *client, const ek_hub_opts *opts, const ek_hub_name *name,
                       const char *url, size_t limit);

/* Seconds to wait before try number `failures`, counted from 1; -1: give up. */
double ek_hub_wait_before(const ek_hub_opts *opts, const ek_get *g, int failures);
/* The sentence for a get that failed for good; what names what was fetched. */
ek_err ek_hub_failed(const ek_hub_opts *opts, const ek_hub_name *name, const char *what, const ek_get *g);
ek_err ek_hub_interrupted(const ek_hub_name *name);

#endif
