/* Equal requests at once: the first computes, the others read its tokens as they come. A flight is the reply so far of
 * one key, while somebody computes it. It belongs to no client: a leader that leaves before a follower has enough makes
 * way for exactly one of these.
 *
 * All functions lock; any thread. */
#ifndef EK_REPLIES_FLIGHT_H
#define EK_REPLIES_FLIGHT_H

#include "replies/record.h"

typedef struct ek_flights ek_flights; /* of a store */
typedef struct ek_flight ek_flight;

/* Who reads. wake: there are new tokens, or no leader any more; called under the lock, from the leader's thread, and
 * not again before ek_flight_awake. */
typedef struct ek_flight_follower {
    struct ek_flight_follower *next;
    void (*wake)(void *arg);
    void *arg;
    bool pending; /* a wake was called and is not answered; of the follower's own once it has left */
} ek_flight_follower;

ek_flights *ek_flights_open(void);
void ek_flights_close(ek_flights *f); /* when all are left; NULL is allowed */

/* The flight of k: as its leader, if there is none (*leads), who gives log-probabilities or not; else as a follower.
 * NULL: it has no leader now, or lacks the log-probabilities that are wanted: compute alone. */
ek_flight *ek_flight_join(ek_flights *all, const ek_reply_key *k, bool probs, ek_flight_follower *f, bool *leads);
/* The leader's next token. probs: as ek_reply_draft_add. */
void ek_flight_add(ek_flight *f, int32_t token, uint64_t row, const ek_logprobs *probs);
/* The leader has ended; followers are woken. */
void ek_flight_land(ek_flight *f);

int ek_flight_tokens(ek_flight *f);
/* Token i; false: it is not there yet. probs: NULL for none. */
bool ek_flight_get(ek_flight *f, int i, int32_t *token, uint64_t *row, ek_logprobs *probs);
void ek_flight_awake(ek_flight *f, ek_flight_follower *who);
/* The follower leaves; no wake is called any more, but one may be on its way (pending). */
void ek_flight_leave(ek_flight *f, ek_flight_follower *who);
bool ek_flight_has_leader(ek_flight *f);
/* Makes the follower the leader, if there is none. *out: what is there so far as a record of k, NULL for no token. */
bool ek_flight_claim(ek_flight *f, ek_flight_follower *who, ek_reply_record **out);

#endif
