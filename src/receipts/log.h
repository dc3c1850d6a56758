/* A log of receipts: a file of lines, each a JSON object that names the hash of the line before it.
 *
 *   {"evenkeel_receipts_log":1,"origin":TEXT}
 *   {"entry":HEX,"n":N,"prev":HEX}                the SHA-256 of envelope N (ek_receipt_entry), from 0
 *   {"n":N,"prev":HEX,"root":HEX,"time":TIME}     the Merkle root over the first N entries
 *   {"entry":HEX,"n":N,"prev":HEX,"rotation":{…}} an envelope in which the old key names the new one
 *
 * The file reveals nothing of prompts and replies. Proofs are those of RFC 9162 (receipts/tree.h). A line is written
 * before its receipt is sent, and synced with the next root. */
#ifndef EK_RECEIPTS_LOG_H
#define EK_RECEIPTS_LOG_H

#include "receipts/receipt.h"

typedef struct ek_receipt_log ek_receipt_log;

/* Opens or creates the file, mode 0600, for this process alone; a new file gets this origin. Removes an incomplete last
 * line, whose receipt was never sent. EFORMAT with the number of an invalid line, or of one that does not follow its
 * predecessor; EBUSY if another process has the file; EIO; EINVAL unless origin is one word of at most 200 characters.
 * read_only: the file is not changed. */
ek_err ek_receipt_log_open(ek_receipt_log **out, const char *path, const char *origin, bool read_only);
void ek_receipt_log_close(ek_receipt_log *l); /* NULL is allowed */

/* All functions below: from any thread. */
const char *ek_receipt_log_origin(const ek_receipt_log *l);
size_t ek_receipt_log_size(ek_receipt_log *l);
ek_hash ek_receipt_log_root(ek_receipt_log *l, size_t *size); /* over all entries */
ek_err ek_receipt_log_ready(ek_receipt_log *l);               /* EIO: no room for a line, or the last write failed */
/* Appends an entry; rotation: JSON, or NULL. EIO: the entry was not written. */
ek_err ek_receipt_log_add(ek_receipt_log *l, const ek_hash *entry, const char *rotation, size_t *index);
/* Appends and syncs the root over all entries, unless the last root is still current; *size and *root describe it. */
ek_err ek_receipt_log_mark(ek_receipt_log *l, int64_t time, size_t *size, ek_hash *root);
/* Appends the checkpoint of the first *size entries, signed by key. 0: all entries, and *size becomes their number.
 * EINVAL for a size beyond the log. */
ek_err ek_receipt_log_checkpoint(ek_buf *out, ek_receipt_log *l, size_t *size, const ek_signing_key *key);
/* Appends JSON members without braces: size, root and path of an entry among the first `size`, and their checkpoint.
 * EINVAL for an index or a size beyond the log. */
ek_err ek_receipt_log_prove(ek_buf *out, ek_receipt_log *l, size_t index, size_t size, const ek_buf *checkpoint);
/* Appends the proof that the first `to` entries (0: all) begin with the first `from`: members from, to, proof, and
 * checkpoint, signed by key. */
ek_err ek_receipt_log_extends(ek_buf *out, ek_receipt_log *l, size_t from, size_t to, const ek_signing_key *key);

/* A checkpoint: a line each with origin, size and root (base64), then the signature of a signed note (C2SP). */
ek_err ek_checkpoint_write(ek_buf *out, const char *origin, size_t size, const ek_hash *root,
                           const ek_signing_key *key);
/* EFORMAT; *good: whether key signed it. */
ek_err ek_checkpoint_read(size_t *size, ek_hash *root, bool *good, const char *text, size_t n,
                          const ek_public_key *key);

/* Whether r's own `log` member proves that r is among the entries of a checkpoint that key signed: the checkpoint
 * `kept`, or if that is NULL, the member's own. *size: the checkpoint's. EFORMAT if the member has no such proof. */
ek_err ek_receipt_logged(bool *good, size_t *size, const ek_receipt *r, const char *kept, size_t n_kept,
                         const ek_public_key *key);

#endif
