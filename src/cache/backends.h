/* Backends of the store: memory and a file of SQLite. */
#ifndef EK_CACHE_BACKENDS_H
#define EK_CACHE_BACKENDS_H

#include "cache/store.h"

/* Cached pages in an SQLite file.
 *
 * Why SQLite and not a memory-mapped store: its library reads damaged and truncated files without faulting, and
 * reports a full disk as an error; a kill at any moment leaves the last commit. A file belongs to one key (model,
 * numerics, layout): its name is a hash of the key and the key is inside, so that another model's file in the same
 * folder is ignored. Each record has a checksum over its name, tokens and bytes; one that does not fit is deleted. A
 * file whose structure is damaged is deleted and begun anew. Both are logged and counted. Prompts can be read from a
 * file, so that it is its owner's alone; links are not followed, and another program's database is left as it is. */

/* dir is created if it is not there (not its parents). max_bytes: of pages; the file itself is a little larger. EIO
 * with the path, also for a link, and for what is no regular file; EFORMAT for a database that is not evenkeel's; EBUSY
 * if another process uses the file. */
ek_err ek_store_sqlite_open(ek_store_backend *out, const char *dir, const char *key, double max_bytes,
                            const ek_kv_layout *layout);

/* Cached pages in host memory, beside those of a device or of a smaller pool: a backend of the store, before the disk's
 * or alone. */

/* Keeps at most max_bytes, the least recently used go. below: what is written goes there too, and what is not here is
 * read there and then kept here; taken over, also on failure; NULL: nothing, and all is gone with the process. ENOMEM
 * if the machine has less than max_bytes available. */
ek_err ek_store_memory_open(ek_store_backend *out, const ek_kv_layout *layout, double max_bytes,
                            const ek_store_backend *below);

#endif
