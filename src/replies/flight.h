/* Equal requests at the same time: the first (the leader) computes, the others (followers) read its tokens as they
 * come. A flight is the reply so far of one key. It belongs to no client: if the leader leaves early, exactly one
 * follower may become the leader.
 *
 * All functions lock; any thread. */
#ifndef EK_REPLIES_FLIGHT_H
#define EK_REPLIES_FLIGHT_H

#include "replies/record.h"

typedef struct ek_flights ek_flights; /* of a store */
typedef struct ek_flight ek_flight;

/* A follower. wake says that there are new tokens or that the leader left. It is called under the lock on the leader's
 * thread, and not again before ek_flight_awake. */
typedef struct ek_flight_follower {
    struct ek_flight_follower *next;
    void (*wake)(void *arg);
    void *arg;
    bool pending; /* wake was called and not answered yet; the follower's own field once it has left */
} ek_flight_follower;

ek_flights *ek_flights_open(void);
void ek_flights_close(ek_flights *f); /* after everybody has left; NULL is allowed */

/* Joins the flight of k: as the leader of a new one (*leads true; probs: the leader gives log-probabilities), else as a
 * follower. NULL: the flight has no leader now or lacks the wanted log-probabilities; compute alone. */
ek_flight *ek_flight_join(ek_flights *all, const ek_reply_key *k, bool probs, ek_flight_follower *f, bool *leads);
/* The leader's next token. probs: as ek_reply_draft_add. */
void ek_flight_add(ek_flight *f, int32_t token, uint64_t row, const ek_logprobs *probs);
/* The leader has ended; followers are woken. */
void ek_flight_land(ek_flight *f);

int ek_flight_tokens(ek_flight *f);
/* Token i; false: it has not come yet. probs may be NULL. */
bool ek_flight_get(ek_flight *f, int i, int32_t *token, uint64_t *row, ek_logprobs *probs);
void ek_flight_awake(ek_flight *f, ek_flight_follower *who);
/* The follower leaves. wake is not called any more, but one call may still be unanswered (pending). */
void ek_flight_leave(ek_flight *f, ek_flight_follower *who);
bool ek_flight_has_leader(ek_flight *f);
/* Makes the follower the leader if there is none. *out: a record of the tokens so far; NULL: there are none. */
bool ek_flight_claim(ek_flight *f, ek_flight_follower *who, ek_reply_record **out);

#endif
