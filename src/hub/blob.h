/* One blob while it is fetched: its lock, its file, its hash. Inside src/hub. */
#ifndef EK_HUB_BLOB_H
#define EK_HUB_BLOB_H

#include "base/hash/sha1.h"
#include "base/hash/sha256.h"
#include "hub/cache.h"

typedef struct ek_hub_blob {
    const ek_hub_cache *cache;
    const ek_hub_file *file;
    int lock, fd;    /* -1 without */
    int64_t written; /* bytes of HASH.incomplete, all of them from the beginning of the file */
    int64_t hashed;  /* of those */
    union {
        ek_sha1_state sha1;
        ek_sha256_state sha256;
    } hash;
} ek_hub_blob;

typedef enum ek_hub_claim { EK_HUB_OURS, EK_HUB_THERE, EK_HUB_HELD } ek_hub_claim;

/* Locks the blob and opens what there is of it: OURS. THERE: it is complete. HELD: another process fetches it. */
ek_err ek_hub_blob_claim(ek_hub_blob *b, ek_hub_claim *claim, const ek_hub_cache *cache, const ek_hub_file *file);
/* Hashes at most n of the bytes that were there before. */
ek_err ek_hub_blob_hash(ek_hub_blob *b, int64_t n);
/* Appends; hashed must have reached written. EIO: the disk is full, or the file may not grow. */
ek_err ek_hub_blob_write(ek_hub_blob *b, const void *data, size_t n);
/* All bytes are written and hashed: the hash is compared and the blob gets its name. EFORMAT: they are not what they
 * should be, and what was written is gone; claim it again to start from the beginning. */
ek_err ek_hub_blob_finish(ek_hub_blob *b);
void ek_hub_blob_release(ek_hub_blob *b); /* what was written stays */

#endif
