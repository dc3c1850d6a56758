/* Sockets of ZeroMQ's kind for events: an XPUB, to which each batch goes once for all peers, or a ROUTER, which answers
 * one. Where an address is bound, at most EK_PEERS at a time; if one more comes, a peer that never subscribed makes
 * room, or one of the address that has most of them. Nothing waits: a subscriber that is EK_PEERS_UNREAD messages
 * behind loses the oldest. Of each peer a turn reads and writes a bounded amount. One thread. */
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
    const atomic_bool *stop;          /* names are not looked up any longer */
    /* Somebody subscribed who had not; a peer asks a router for what is from a number on, or for something else. */
    void (*subscribed)(void *arg);
    bool (*has_room)(void *arg); /* for what is asked; where it has none, peers are not listened to. NULL: always */
    void (*asked)(void *arg, uint64_t peer, bool good, const uint8_t number[8]);
    void *arg;
} ek_peers_opts;

/* Binds, or will connect. EIO with the reason. */
ek_err ek_peers_open(ek_peers **out, const ek_peers_opts *opts);
void ek_peers_close(ek_peers *p);                 /* NULL is allowed */
const char *ek_peers_endpoint(const ek_peers *p); /* tcp://ADDRESS:PORT, with the port that was taken */

/* What is to be polled: room for EK_PEERS_FDS. Returns how many. */
int ek_peers_poll(ek_peers *p, struct pollfd *fds);
/* After that: takes in who comes, what they say, and sends what they lack. */
void ek_peers_turn(ek_peers *p, const struct pollfd *fds, int n);
/* Milliseconds after which there is something to do whatever the peers do; -1: nothing. */
int ek_peers_wait(const ek_peers *p);

/* A message, its frames as ek_zmtp_frame makes them, for all subscribers; taken over. */
void ek_peers_publish(ek_peers *p, ek_buf *message);
/* For one peer of a router; taken over if it was sent. EBUSY: it has too much unread; ENOTFOUND: it is gone. */
ek_err ek_peers_send(ek_peers *p, uint64_t peer, ek_buf *message);

#endif
