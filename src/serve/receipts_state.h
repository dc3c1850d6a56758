/* The insides of a server's receipts. Inside src/serve. */
#ifndef EK_SERVE_RECEIPTS_STATE_H
#define EK_SERVE_RECEIPTS_STATE_H

#include "receipts/log.h"
#include "receipts/openings.h"
#include "serve/receipts.h"

/* Texts that can be read once more, the newest first. */
typedef struct ek_kept_receipt {
    struct ek_kept_receipt *next, *newer; /* the older one; and back */
    int n_refs;                           /* the list's, and those who send it */
    uint64_t owner;
    char *id;
    ek_buf text;
} ek_kept_receipt;

void ek_kept_receipt_release(void *receipt);

/* A key of this process; what it signed can be checked as long as the process runs. */
typedef struct ek_server_key {
    struct ek_server_key *older;
    ek_signing_key *key;
    int64_t from, until; /* seconds since 1970; until 0: it signs */
} ek_server_key;

struct ek_receipts {
    char *key_file;
    char weights[65], tokenizer[65];
    ek_server_key *keys; /* the first one signs. A key stays until the end: replies point to it */
    ek_kept_receipt *newest, *oldest;
    int n_kept;
    size_t kept_bytes;
    uint64_t made;
    ek_receipt_log *log;   /* NULL: none */
    ek_openings *openings; /* NULL: none are kept */
    bool hides_lengths;
    ek_job marking; /* writes the root of an hour, while `marks` */
    bool marks;
    int64_t hour; /* of the last one */
    size_t marked;
    ek_hash root; /* over the first `marked` */
    ek_err mark_err;
    char mark_why[200];
};

#endif
