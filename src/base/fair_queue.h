/* Turns between clients: who comes next, where one may ask for much and another for little.
 *
 * Start-time fair queueing: each thing to do gets a turn, and lower places go first, equal ones as they came. A
 * client's next turn lies behind its last one by what that costs, and nobody's lies before what has begun. So a client
 * that asks for 300 things at once shares with one that asks for one: that one waits for what runs, not for the 300.
 * Alone, a client's things go in the order in which they came. Not synchronised. */
#ifndef EK_BASE_FAIR_QUEUE_H
#define EK_BASE_FAIR_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ek_fair_queue_client {
    uint64_t id, next; /* next: where its next turn may be */
    int n;             /* of its things that have entered and not left */
} ek_fair_queue_client;

/* Zero-initialise. */
typedef struct ek_fair_queue {
    ek_fair_queue_client *client;
    int n_clients, cap;
    int n;        /* things that have entered and not left */
    uint64_t now; /* the highest turn that has begun */
} ek_fair_queue;

/* A turn for something of a client's that costs so much (at least 1, in any unit). */
uint64_t ek_fair_queue_enter(ek_fair_queue *t, uint64_t client, uint64_t cost);
/* What a client's thing cost beyond what it entered with: its next turn, and where the caller keeps things that wait,
 * theirs, lie so much further behind. */
void ek_fair_queue_charge(ek_fair_queue *t, uint64_t client, uint64_t more);
void ek_fair_queue_begin(ek_fair_queue *t, uint64_t turn); /* what has this turn */
/* Another turn for what has begun, has cost so much, and is to go on later: behind what others may have meanwhile. */
uint64_t ek_fair_queue_again(ek_fair_queue *t, uint64_t client, uint64_t turn, uint64_t cost);
int ek_fair_queue_clients(const ek_fair_queue *t); /* that have something here */
void ek_fair_queue_leave(ek_fair_queue *t, uint64_t client);
/* Whether a client's next thing may enter where there is room for so many. Where one client has taken all of it there
 * is room for others, each up to an equal share: together at most twice as many. */
bool ek_fair_queue_has_room(const ek_fair_queue *t, uint64_t client, int room);
void ek_fair_queue_fini(ek_fair_queue *t);

#endif
