/* Redis' protocol (RESP2, also Valkey's) over a link: commands out, replies in, in order. Inside src/cache/shared. */
#ifndef EK_CACHE_SHARED_REDIS_H
#define EK_CACHE_SHARED_REDIS_H

#include <stdint.h>

#include "cache/shared/link.h"

typedef struct ek_redis ek_redis;

typedef enum ek_reply_kind {
    EK_REPLY_STATUS, /* text, such as OK */
    EK_REPLY_ERROR,  /* an error reply of the server; text has its words */
    EK_REPLY_NUMBER,
    EK_REPLY_BYTES,
    EK_REPLY_NONE /* no such key */
} ek_reply_kind;

/* text and n: borrowed until the next reply is read; NUL follows the bytes. */
typedef struct ek_reply {
    ek_reply_kind kind;
    long long number;
    char *text;
    size_t n;
} ek_reply;

/* Connects, authenticates and selects the database. Errors of ek_link_open; EIO with a refusing server's words. */
ek_err ek_redis_open(ek_redis **out, const ek_link_opts *o, double deadline);
void ek_redis_close(ek_redis *r); /* NULL is allowed */

/* A part of a command, bytes of any kind. */
typedef struct ek_redis_arg {
    const void *bytes;
    size_t n;
} ek_redis_arg;

/* Sends a command; its reply is read later, in order. After an error the connection is unusable. */
ek_err ek_redis_send(ek_redis *r, const ek_redis_arg *arg, int n, double deadline);
/* Reads the next reply, of at most max_bytes and 16 KiB, so that a server cannot take more memory. EFORMAT: not a
 * reply, too long, or of a kind that no command here gets. */
ek_err ek_redis_read(ek_redis *r, ek_reply *out, size_t max_bytes, double deadline);
/* The same, but bytes go to `into`, which has `room` bytes; out->text is NULL then. Up to EK_REDIS_SKIPPED further
 * bytes are dropped; only out->n shows it. */
enum { EK_REDIS_SKIPPED = 1 << 20 };
ek_err ek_redis_read_into(ek_redis *r, ek_reply *out, uint8_t *into, size_t room, double deadline);
/* Gives the latest reply's text to the caller, to be freed with free. */
char *ek_redis_keep(ek_redis *r);

#endif
