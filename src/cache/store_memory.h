/* Cached pages in host memory, beside those of a device or of a smaller pool: a backend of the store, before the disk's
 * or alone. */
#ifndef EK_CACHE_STORE_MEMORY_H
#define EK_CACHE_STORE_MEMORY_H

#include "cache/store.h"

/* Keeps at most max_bytes, the least recently used go. below: what is written goes there too, and what is not here is
 * read there and then kept here; taken over, also on failure; NULL: nothing, and all is gone with the process. ENOMEM
 * if the machine has less than max_bytes available. */
ek_err ek_store_memory_open(ek_store_backend *out, const ek_kv_layout *layout, double max_bytes,
                            const ek_store_backend *below);

#endif
