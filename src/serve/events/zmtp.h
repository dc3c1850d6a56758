/* ZMTP 3.0 (rfc.zeromq.org/spec/23), what ZeroMQ's sockets speak over TCP, without encryption: the side of an XPUB or
 * of a ROUTER, as far as this program needs it. Pure: bytes in, news out. A peer's topics are compared with the one
 * that is published and not kept, so that nothing a peer sends takes memory beyond this structure. */
#ifndef EK_SERVE_EVENTS_ZMTP_H
#define EK_SERVE_EVENTS_ZMTP_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

enum { EK_ZMTP_FRAME_MAX = 1024, EK_ZMTP_ROOM = EK_ZMTP_FRAME_MAX + 9 /* flags, a length of 8 bytes */ };

/* What a peer has sent, from its greeting on. Zero-initialise, with router and topic. */
typedef struct ek_zmtp {
    bool router;       /* else it publishes */
    const char *topic; /* the only one that is published; borrowed */
    int state;         /* zmtp.c */
    uint8_t in[EK_ZMTP_ROOM];
    size_t n;          /* of them are there: the caller adds behind them */
    int n_frames;      /* of a message to a router that is not whole yet */
    size_t size[2];    /* of its first two */
    uint8_t number[8]; /* the second, if it is that long */
} ek_zmtp;

typedef enum ek_zmtp_news {
    EK_ZMTP_NOTHING, /* more bytes are needed */
    EK_ZMTP_READY,   /* it is a socket that fits ours */
    EK_ZMTP_SUBSCRIBED,
    EK_ZMTP_UNSUBSCRIBED, /* from something that the published topic begins with */
    EK_ZMTP_PING,         /* out holds the answer */
    EK_ZMTP_REQUEST,      /* an empty frame, and 8 bytes: number */
    EK_ZMTP_BAD_REQUEST,  /* another message to a router */
    EK_ZMTP_OTHER         /* of no meaning here */
} ek_zmtp_news;

/* Takes the next thing out of z->in. What is to be answered is appended to out. EINVAL: it speaks something else, or
 * breaks the rules, or a frame is longer than EK_ZMTP_FRAME_MAX; the connection is to be closed. */
ek_err ek_zmtp_next(ek_zmtp *z, ek_zmtp_news *news, ek_buf *out);

/* What this side says first, all of it. */
void ek_zmtp_greet(ek_buf *out, bool router);
/* A frame of a message; more: not its last one. */
void ek_zmtp_frame(ek_buf *out, const void *data, size_t n, bool more);

#endif
