/* ZMTP 3.0 (rfc.zeromq.org/spec/23), the protocol of ZeroMQ's sockets over TCP, without encryption: the side of an XPUB
 * or a ROUTER, as far as this program needs it. Pure: bytes in, news out. A peer's topics are compared with the
 * published topic and not stored, so that no peer can take memory beyond this structure. */
#ifndef EK_SERVE_EVENTS_ZMTP_H
#define EK_SERVE_EVENTS_ZMTP_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

enum { EK_ZMTP_FRAME_MAX = 1024, EK_ZMTP_ROOM = EK_ZMTP_FRAME_MAX + 9 /* flags, a length of 8 bytes */ };

/* The bytes that a peer has sent, from its greeting on. Zero-initialise, except router and topic. */
typedef struct ek_zmtp {
    bool router;       /* true: ROUTER; false: XPUB */
    const char *topic; /* the published topic; borrowed */
    int state;         /* zmtp.c */
    uint8_t in[EK_ZMTP_ROOM];
    size_t n;          /* bytes in `in`: the caller appends after them */
    int n_frames;      /* frames of an incomplete message to a router */
    size_t size[2];    /* bytes of its first two frames */
    uint8_t number[8]; /* the second frame, if it has 8 bytes */
} ek_zmtp;

typedef enum ek_zmtp_news {
    EK_ZMTP_NOTHING, /* more bytes are needed */
    EK_ZMTP_READY,   /* the peer's socket fits ours */
    EK_ZMTP_SUBSCRIBED,
    EK_ZMTP_UNSUBSCRIBED, /* from a prefix of the published topic */
    EK_ZMTP_PING,         /* out holds the answer */
    EK_ZMTP_REQUEST,      /* an empty frame, and a frame of 8 bytes: number */
    EK_ZMTP_BAD_REQUEST,  /* any other message to a router */
    EK_ZMTP_OTHER         /* no meaning here */
} ek_zmtp_news;

/* Takes the next item out of z->in, and appends the answer to out. EINVAL: the peer speaks another protocol, breaks the
 * rules, or sends a frame longer than EK_ZMTP_FRAME_MAX; the connection has to be closed. */
ek_err ek_zmtp_next(ek_zmtp *z, ek_zmtp_news *news, ek_buf *out);

/* Appends this side's greeting and handshake. */
void ek_zmtp_greet(ek_buf *out, bool router);
/* Appends a frame of a message; more: another frame follows. */
void ek_zmtp_frame(ek_buf *out, const void *data, size_t n, bool more);

#endif
