/* Finds the call that each tool's result answers, wherever the result stands. Inside src/chat. */
#ifndef EK_CHAT_PAIRS_H
#define EK_CHAT_PAIRS_H

#include "chat/conversation.h"

typedef struct ek_pair_call {
    const ek_block *block;
    int message;       /* it stands in */
    int first, last;   /* its results: messages of EK_ROLE_TOOL, ascending, linked by ek_pairs.next; -1: none */
    int before, after; /* the nearest calls of the same id; -1: none, also where it has no id */
} ek_pair_call;

/* Zero-initialise; ek_pairs_fini when done. The conversation is borrowed. */
typedef struct ek_pairs {
    ek_pair_call *calls; /* in order */
    int n_calls;
    int *next;       /* of each message: the next result of the same call; -1. NULL without results */
    int *first_call; /* of each message: index of its first call, or of the first one behind it */
} ek_pairs;

/* Calls are those of all messages but tools'. A result answers the nearest open call of its id before it (of several in
 * one message the first); where none is open, the nearest one; where none stands before it, the nearest open one behind
 * it. Ids are compared as bytes. A result without an id answers the nearest open call before it, of its name if it has
 * one and such a call is there; one whose id no call has, the nearest open call that has no id. EINVAL for a result
 * without a call, with its id. n log n for n calls and results. ek_pairs_fini also after a failure. */
ek_err ek_pairs_make(ek_pairs *p, const ek_conversation *c);
void ek_pairs_fini(ek_pairs *p);

#endif
