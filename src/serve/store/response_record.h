/* A response in a file: one record, in this machine's byte order. Inside src/serve.
 *
 *   head      "EKSTORE1", the SHA-256 of everything after it, and the numbers below
 *   texts     id, previous, input, response; then the positions of the items
 *
 * Reading checks the sum, all lengths and all texts, because later readers trust them. */
#ifndef EK_SERVE_RESPONSE_RECORD_H
#define EK_SERVE_RESPONSE_RECORD_H

#include "serve/store/response_state.h"

enum { EK_RESPONSE_RECORD_NAME = 32 + 1 }; /* with NUL */

/* The name of a response's file: a hash of owner and id, because a client may choose the id. */
void ek_response_record_name(char out[EK_RESPONSE_RECORD_NAME], uint64_t owner, const char *id);

/* Writes e to a descriptor. EIO. */
ek_err ek_response_record_write(int fd, const ek_response_entry *e);

/* A record that was read. It owns its texts; ek_response_store_put_read takes them over. */
typedef struct ek_response_record {
    uint64_t owner;
    double changed;
    ek_stored_response r;
    char *id, *previous;
} ek_response_record;

/* EFORMAT: the record is damaged or belongs to another name; EUNSUPPORTED: it has another version. */
ek_err ek_response_record_read(ek_response_record *out, ek_response_store *s, const char *name, const void *bytes,
                               size_t n);
void ek_response_record_fini(ek_response_record *r);

#endif
