/* A turn from inside. Inside src/chat. */
#ifndef EK_CHAT_TURN_STATE_H
#define EK_CHAT_TURN_STATE_H

#include "chat/turn.h"
#include "text/utf8.h"

#include <pthread.h>

struct ek_turn {
    const ek_chat_model *model;
    ek_turn_opts opts;
    ek_reply *reply;
    ek_stop *stop; /* NULL without stop strings */
    ek_reply_sink_fn *sink;
    void *sink_arg;
    ek_turn_result result;
    ek_bounds bounds; /* the engine's while the turn is live */
    ek_record record;
    ek_loops loops;
    bool stop_hit, thinking; /* thinking: on in the prompt */
    ek_utf8_stream utf8;     /* of a plain reply */
    ek_buf held;             /* visible text of the token being fed, until its log-probabilities are recorded */
    bool holding;
    size_t fed; /* bytes of content so far, visible or not */
    int cap_logprobs;
    ek_ids resumed; /* the reply so far, when the turn was opened */
    size_t n_replayed;
    ek_turn_resumed before; /* the counts only; its pointers are not used */
    bool has_digest_before;
    uint64_t digest_before;

    /* The store: tokens [0, n_stored) of found come from there; n_out of them were given out. */
    ek_turn_stored stored;
    ek_reply_outcome outcome;
    int n_stored, n_out, limit; /* limit: maximum tokens of the reply */
    bool checks;                /* `resumed` holds the stored tokens, read again for data that is not stored */
    ek_turn_prompt prompt;      /* with checks, after submission: used to compute the reply if the store was wrong */
    bool restarts, given_up;    /* the store was wrong, and the old request has to end first; the owner gave up */
    uint64_t stored_hash;       /* chained digests of the n_out tokens */

    /* A reply that several turns want. following: the turn's source of tokens, n_out of which were given out. */
    ek_flight *following;
    ek_flight_follower follower;
    bool shared_once; /* other turns were looked for */
    char *ask;

    ek_reading reading;
    ek_engine *engine;
    ek_request_id id;
    bool live; /* the engine has not posted its last news */

    /* Written by submit, then by the engine's thread alone. */
    ek_turn_post_fn *post;
    void *post_arg, *user;
    int n_vocab, n_prompt;
    uint64_t hash;
    ek_logprobs *prompt_logprobs, *resumed_logprobs; /* other threads read them after the first token was posted */
    ek_hash *resumed_roots;                          /* likewise */
    /* For the store, under the lock: the reply so far. A turn that ends before its request stores it at once. */
    pthread_mutex_t keeping;
    ek_reply_draft draft;
    ek_flight *leading; /* other turns read the reply so far here; NULL: none can */
    bool keeps;
    bool contradicted; /* a recomputed row differs from the stored one */
};

/* In turn_stored.c: decides which tokens come from the store; prompt as in ek_turn_open. Then the store's input: tokens
 * on the engine's thread, the end on any thread. */
void ek_turn_plan_stored(ek_turn *t, const ek_turn_prompt *prompt, const ek_turn_opts *opts);
void ek_turn_keep_token(ek_turn *t, int32_t token, uint64_t row, const ek_logprobs *probs);
void ek_turn_keep_end(ek_turn *t, ek_finish finish);
void ek_turn_take_resumed(ek_turn *t, const ek_turn_resumed *r); /* turn.c */
/* At submission, whether another turn computes this reply; its tokens then come by news with wakes. */
bool ek_turn_share(ek_turn *t, const ek_turn_prompt *prompt);
void ek_turn_unfollow(ek_turn *t);
void ek_turn_keep_prompt(ek_turn *t, const ek_turn_prompt *p); /* turn_submit.c: for another submission */
/* In turn_submit.c: submits the request again, without the stored reply, which was wrong. Not while ek_turn_live. */
ek_err ek_turn_submit_again(ek_turn *t);

#endif
