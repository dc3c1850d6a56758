/* Cached pages in an SQLite file.
 *
 * Why SQLite and not a memory-mapped store: its library reads damaged and truncated files without faulting, and
 * reports a full disk as an error; a kill at any moment leaves the last commit. A file belongs to one key (model,
 * numerics, layout): its name is a hash of the key and the key is inside, so that another model's file in the same
 * folder is ignored. Each record has a checksum over its name, tokens and bytes; one that does not fit is deleted. A
 * file whose structure is damaged is deleted and begun anew. Both are logged and counted. Prompts can be read from a
 * file, so that it is its owner's alone; links are not followed, and another program's database is left as it is. */
#ifndef EK_CACHE_STORE_SQLITE_H
#define EK_CACHE_STORE_SQLITE_H

#include "cache/store.h"

/* dir is created if it is not there (not its parents). max_bytes: of pages; the file itself is a little larger. EIO
 * with the path, also for a link, and for what is no regular file; EFORMAT for a database that is not evenkeel's; EBUSY
 * if another process uses the file. */
ek_err ek_store_sqlite_open(ek_store_backend *out, const char *dir, const char *key, double max_bytes,
                            const ek_kv_layout *layout);

#endif
