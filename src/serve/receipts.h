/* Receipts of a server. They are made at the end of a reply if the request asks, and kept to be read again. */
#ifndef EK_SERVE_RECEIPTS_H
#define EK_SERVE_RECEIPTS_H

#include "receipts/log.h"
#include "receipts/openings.h"
#include "receipts/receipt.h"
#include "serve/session.h"

/* Opens key and files. Returns errors of ek_signing_key_open. Without a key in o there are no receipts. */
ek_err ek_receipts_open(ek_server *s, const ek_server_opts *o);
void ek_receipts_close(ek_server *s);
/* Reads the key file again; running replies keep their key. */
void ek_receipts_reload(ek_server *s);

/* Whether a reply with a receipt may begin: EIO if the log has no room. */
ek_err ek_receipts_ready(const ek_server *s);
bool ek_receipts_logs(const ek_server *s);
bool ek_receipts_waits(const ek_server *s);      /* a receipt is sent only after a write to disk */
size_t ek_receipts_log_size(const ek_server *s); /* entries */
/* The latest published root. Returns its number of entries; 0: there is no root. */
size_t ek_receipts_root(const ek_server *s, char root[65]);
void ek_receipts_tick(ek_server *s); /* writes a root into the log once an hour */
/* The current key, for a new reply; valid until ek_receipts_close. */
const ek_signing_key *ek_receipts_key(const ek_server *s);

/* The parts of a reply's receipts; everything is borrowed. */
typedef struct ek_receipt_of {
    const ek_api_request *req;
    const char *api, *id;         /* the dialect's path; the reply's id */
    const ek_turn_prompt *prompt; /* the first, as of ek_api_prompt_of */
    const ek_turn_result *const *results;
    const ek_signing_key *key;
    ek_seed_from seed_from; /* for sampled replies */
} ek_receipt_of;

/* The maximum bytes that ek_receipts_write appends. */
size_t ek_receipts_bytes(const ek_receipt_of *of);
/* Appends the receipt, or a list with one per choice, after all choices have ended. Any thread. EINTERNAL, EIO. */
ek_err ek_receipts_write(const ek_server *s, ek_buf *out, const ek_receipt_of *of);

/* Keeps a text, taken over, for the owner's GET /v1/receipts/ID. Event thread, as the functions below. */
void ek_receipts_keep(ek_server *s, uint64_t owner, const char *id, ek_buf *text);
uint64_t ek_receipts_count(const ek_server *s); /* receipts made so far */
/* Answers GET /v1/receipts/…: an id, keys (the public keys as a JWK set) or log/consistency. In receipts_read.c. */
void ek_receipts_get(ek_server *s, ek_exchange *x, const char *id);

/* --- from inside --- */

/* Receipts that can be read again, the newest first. */
typedef struct ek_kept_receipt {
    struct ek_kept_receipt *next, *newer; /* the next older one; the next newer one */
    int n_refs;                           /* held by the list and by replies that send it */
    uint64_t owner;
    char *id;
    ek_buf text;
} ek_kept_receipt;

void ek_kept_receipt_release(void *receipt);

/* A key of this process. Old keys stay, so that their receipts can be checked while the process runs. */
typedef struct ek_server_key {
    struct ek_server_key *older;
    ek_signing_key *key;
    int64_t from, until; /* seconds since 1970; until 0: the current key */
} ek_server_key;

struct ek_receipts {
    char *key_file;
    char weights[65], tokenizer[65];
    ek_server_key *keys; /* the first one signs; older ones stay, because replies point to them */
    ek_kept_receipt *newest, *oldest;
    int n_kept;
    size_t kept_bytes;
    uint64_t made;
    ek_receipt_log *log;   /* NULL: none */
    ek_openings *openings; /* NULL: none are kept */
    bool hides_lengths;
    ek_job marking; /* writes an hour's root; runs while `marks` */
    bool marks;
    int64_t hour; /* the hour of the last root */
    size_t marked;
    ek_hash root; /* the root over the first `marked` entries */
    ek_err mark_err;
    char mark_why[200];
};

#endif
