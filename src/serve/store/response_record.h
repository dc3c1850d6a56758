/* A response as it lies in a file: one record, of this machine's byte order. Inside src/serve.
 *
 *   head      "EKSTORE1", the SHA-256 of all that follows it, and the numbers below
 *   texts     id, previous, input, response; then where the items stand
 *
 * A record is a stranger's until its sum, its lengths and its texts were checked: what is read later is taken as our
 * own writing. */
#ifndef EK_SERVE_RESPONSE_RECORD_H
#define EK_SERVE_RESPONSE_RECORD_H

#include "serve/store/response_state.h"

enum { EK_RESPONSE_RECORD_NAME = 32 + 1 }; /* with NUL */

/* The name of a file: of whom and which it is, so that no id, which a client may choose, becomes a path. */
void ek_response_record_name(char out[EK_RESPONSE_RECORD_NAME], uint64_t owner, const char *id);

/* Writes it to a descriptor. EIO. */
ek_err ek_response_record_write(int fd, const ek_response_entry *e);

/* What was read: texts of their own, to be taken over by ek_response_store_put. */
typedef struct ek_response_record {
    uint64_t owner;
    double changed;
    ek_stored_response r;
    char *id, *previous;
} ek_response_record;

/* EFORMAT: it is damaged, or not the one that its name says; EUNSUPPORTED: of another version. */
ek_err ek_response_record_read(ek_response_record *out, ek_response_store *s, const char *name, const void *bytes,
                               size_t n);
void ek_response_record_fini(ek_response_record *r);

#endif
