/* A server's receipts from inside. Inside src/serve. */
#ifndef EK_SERVE_RECEIPTS_STATE_H
#define EK_SERVE_RECEIPTS_STATE_H

#include "receipts/log.h"
#include "receipts/openings.h"
#include "serve/receipts.h"

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
