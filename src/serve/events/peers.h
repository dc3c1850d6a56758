/* ZeroMQ sockets for events: an XPUB, which sends each batch to all peers, or a ROUTER, which answers one peer. A bound
 * address holds at most EK_PEERS peers. When one more connects, the socket disconnects a peer that never subscribed, or
 * one of the address that has the most peers. Nothing waits: a subscriber that is EK_PEERS_UNREAD messages behind loses
 * the oldest message. A turn reads and writes a bounded number of bytes per peer. One thread. */
#ifndef EK_SERVE_EVENTS_PEERS_H
#define EK_SERVE_EVENTS_PEERS_H

#include <poll.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/err.h"
#include "serve/events/events.h"

enum {
    EK_PEERS = 64,
    EK_PEERS_UNREAD = 1000,
    EK_PEERS_UNREAD_ROUTER = 16,
    EK_PEERS_FDS = EK_PEERS + 1,
    EK_PEERS_ENDPOINT = EK_EVENTS_HOST_MAX + 32
};

typedef struct ek_peers ek_peers;

typedef struct ek_peers_opts {
    const ek_events_address *address; /* copied */
    const char *topic;                /* borrowed until close; NULL: a router */
    const atomic_bool *stop;          /* true: host names are no longer looked up */
    /* subscribed: a peer without a subscription subscribed. asked: a peer asks a router for all batches from `number`
     * on (good), or for something else (not good). */
    void (*subscribed)(void *arg);
    bool (*has_room)(void *arg); /* whether another question can be taken; if not, peers are not read. NULL: always */
    void (*asked)(void *arg, uint64_t peer, bool good, const uint8_t number[8]);
    void *arg;
} ek_peers_opts;

/* Binds, or begins to connect. EIO with the reason. */
ek_err ek_peers_open(ek_peers **out, const ek_peers_opts *opts);
void ek_peers_close(ek_peers *p);                 /* NULL is allowed */
const char *ek_peers_endpoint(const ek_peers *p); /* tcp://ADDRESS:PORT, with the actual port */

/* Writes the descriptors to poll; fds has room for EK_PEERS_FDS. Returns their number. */
int ek_peers_poll(ek_peers *p, struct pollfd *fds);
/* After the poll: accepts peers, reads their messages, and sends their unread ones. */
void ek_peers_turn(ek_peers *p, const struct pollfd *fds, int n);
/* Milliseconds until the next work that no peer causes; -1: none. */
int ek_peers_wait(const ek_peers *p);

/* Sends a message (its frames from ek_zmtp_frame) to all subscribers, and takes it over. */
void ek_peers_publish(ek_peers *p, ek_buf *message);
/* Sends a message to one peer of a router, and takes it over if it was sent. EBUSY: the peer has too many unread
 * messages. ENOTFOUND: the peer is gone. */
ek_err ek_peers_send(ek_peers *p, uint64_t peer, ek_buf *message);

/* --- ZMTP 3.0 (rfc.zeromq.org/spec/23), the protocol of ZeroMQ's sockets over TCP, without encryption ---
 *
 * The side of an XPUB or a ROUTER, as far as this program needs it. Pure: bytes in, news out. A peer's topics are
 * compared with the published topic and not stored, so that no peer can take memory beyond this structure. */

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
