/* Receipts of a server: made at the end of a reply for requests that ask, and kept to be read once more. */
#ifndef EK_SERVE_RECEIPTS_H
#define EK_SERVE_RECEIPTS_H

#include "receipts/receipt.h"
#include "serve/session.h"

/* Errors of ek_signing_key_open. Without a key of opts there are no receipts. */
ek_err ek_receipts_open(ek_server *s, const ek_server_opts *o);
void ek_receipts_close(ek_server *s);
/* Reads the file of the key again; replies that run keep theirs. */
void ek_receipts_reload(ek_server *s);

/* Whether a reply may begin that is to have one: EIO where the log has no room. */
ek_err ek_receipts_ready(const ek_server *s);
bool ek_receipts_logs(const ek_server *s);
bool ek_receipts_waits(const ek_server *s);      /* a disk is waited for before a receipt is sent */
size_t ek_receipts_log_size(const ek_server *s); /* entries */
/* The latest root that was written and said, over so many entries; 0: none. */
size_t ek_receipts_root(const ek_server *s, char root[65]);
void ek_receipts_tick(ek_server *s); /* once an hour the log gets its root */
/* The key with which a reply begins; valid until ek_receipts_close. */
const ek_signing_key *ek_receipts_key(const ek_server *s);

/* What a reply's receipts are made of; everything is borrowed. */
typedef struct ek_receipt_of {
    const ek_api_request *req;
    const char *api, *id;         /* path of the dialect; of the reply */
    const ek_turn_prompt *prompt; /* the first, as of ek_api_prompt_of */
    const ek_turn_result *const *results;
    const ek_signing_key *key;
    ek_seed_from seed_from; /* of a reply that draws */
} ek_receipt_of;

/* At most so many bytes. */
size_t ek_receipts_bytes(const ek_receipt_of *of);
/* Appends the receipt, or a list of one per choice. The ends of all choices are known. Any thread. EINTERNAL, EIO. */
ek_err ek_receipts_write(const ek_server *s, ek_buf *out, const ek_receipt_of *of);

/* Keeps a text to be read by the owner as GET /v1/receipts/ID; taken over. Event thread, as the next. */
void ek_receipts_keep(ek_server *s, uint64_t owner, const char *id, ek_buf *text);
uint64_t ek_receipts_count(const ek_server *s); /* made so far */
/* ID; keys: the public keys as a JWK set; or log/consistency. In receipts_read.c. */
void ek_receipts_get(ek_server *s, ek_exchange *x, const char *id);

#endif
