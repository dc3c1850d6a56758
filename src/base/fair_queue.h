/* Turns between clients that ask for much or for little (start-time fair queueing).
 *
 * Every item gets a turn, a number; lower turns go first, equal ones in order of arrival. A client's next turn lies
 * after its last one by the cost of the item, and never before a turn that has begun. So a client with 300 items shares
 * equally with a client with one item: the latter waits for the running items, not for the 300. The items of a single
 * client go in order of arrival. Not synchronised. */
#ifndef EK_BASE_FAIR_QUEUE_H
#define EK_BASE_FAIR_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ek_fair_queue_client {
    uint64_t id, next; /* next: the earliest next turn */
    int n;             /* items that have entered and not left */
} ek_fair_queue_client;

/* Zero-initialise. */
typedef struct ek_fair_queue {
    ek_fair_queue_client *client;
    int n_clients, cap;
    int n;        /* items that have entered and not left */
    uint64_t now; /* the highest turn that has begun */
} ek_fair_queue;

/* The turn of a client's item with this cost (at least 1, in any unit). */
uint64_t ek_fair_queue_enter(ek_fair_queue *t, uint64_t client, uint64_t cost);
/* Charges a client for costs beyond those of ek_fair_queue_enter: its next turn lies `more` later; the caller moves its
 * waiting items likewise. */
void ek_fair_queue_charge(ek_fair_queue *t, uint64_t client, uint64_t more);
void ek_fair_queue_begin(ek_fair_queue *t, uint64_t turn); /* the item with this turn begins */
/* A new turn for an item that has begun, has cost `cost`, and continues later, after items that arrived meanwhile. */
uint64_t ek_fair_queue_again(ek_fair_queue *t, uint64_t client, uint64_t turn, uint64_t cost);
int ek_fair_queue_clients(const ek_fair_queue *t); /* clients with items */
void ek_fair_queue_leave(ek_fair_queue *t, uint64_t client);
/* Whether a client's next item may enter a queue with room for `room` items. If one client fills the room, the others
 * may still enter, each up to an equal share; in all at most twice `room`. */
bool ek_fair_queue_has_room(const ek_fair_queue *t, uint64_t client, int room);
void ek_fair_queue_fini(ek_fair_queue *t);

#endif
