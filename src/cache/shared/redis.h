/* Redis' protocol (RESP2, which Valkey speaks too) over a link: commands out, replies in, in their order. Inside
 * src/cache/shared. */
#ifndef EK_CACHE_SHARED_REDIS_H
#define EK_CACHE_SHARED_REDIS_H

#include <stdint.h>

#include "cache/shared/link.h"

typedef struct ek_redis ek_redis;

typedef enum ek_reply_kind {
    EK_REPLY_STATUS, /* text, such as OK */
    EK_REPLY_ERROR,  /* the server's own: text says which */
    EK_REPLY_NUMBER,
    EK_REPLY_BYTES,
    EK_REPLY_NONE /* there is no such key */
} ek_reply_kind;

/* text and n: borrowed until the next reply is read; a NUL stands behind the bytes. */
typedef struct ek_reply {
    ek_reply_kind kind;
    long long number;
    char *text;
    size_t n;
} ek_reply;

/* Connects, authenticates and selects the database. Errors as ek_link_open; EIO with what a server says that
 * refuses. */
ek_err ek_redis_open(ek_redis **out, const ek_link_opts *o, double deadline);
void ek_redis_close(ek_redis *r); /* NULL is allowed */

/* A part of a command, bytes of any kind. */
typedef struct ek_redis_arg {
    const void *bytes;
    size_t n;
} ek_redis_arg;

/* Sends a command; its reply is to be read in its turn. After an error the connection is of no use. */
ek_err ek_redis_send(ek_redis *r, const ek_redis_arg *arg, int n, double deadline);
/* The next reply, of at most max_bytes and 16 KiB: whatever a server sends, no more than that is held. EFORMAT: what is
 * no reply, or too long, or one of a kind that no command here gets. */
ek_err ek_redis_read(ek_redis *r, ek_reply *out, size_t max_bytes, double deadline);
/* The same, but bytes go to `into`, which has room for so many, and not to out->text, which is NULL then. More than
 * these, by at most EK_REDIS_SKIPPED, are thrown away: out->n alone says so. */
enum { EK_REDIS_SKIPPED = 1 << 20 };
ek_err ek_redis_read_into(ek_redis *r, ek_reply *out, uint8_t *into, size_t room, double deadline);
/* The text of the last reply is the caller's from now on, to be freed with free. */
char *ek_redis_keep(ek_redis *r);

#endif
