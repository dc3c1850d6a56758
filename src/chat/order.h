/* The order in which the chat template can say what the assistant wrote and the results of its tools, and the
 * JSON values that it reads. Inside src/chat.
 *
 * In the template the results of calls follow the message of the calls, and what comes behind them is in the same turn
 * of the model. So what the model wrote keeps its order where the results of the calls before it can be said first:
 * behind results that were there, and between calls of which each group has results. What stands between a call and
 * its result, and was the last thing said before the result came, goes before the calls: behind the result it would
 * end the turn, and the next turn would glue to it. That place stays the same while the conversation grows. */
#ifndef EK_CHAT_ORDER_H
#define EK_CHAT_ORDER_H

#include <jansson.h>

#include "chat/conversation.h"

/* Finds the call that each tool's result answers, wherever the result stands. Inside src/chat. */

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

typedef struct ek_step {
    const ek_message *message;
    const ek_block *block; /* NULL: the message has none */
    int call;              /* index in pairs->calls; -1 */
    bool joins;            /* belongs into the same message of the template as the step before */
    bool closes;           /* behind it the results of its call and of those that it joins */
} ek_step;

typedef struct ek_steps {
    ek_step *at;
    int n, cap;
} ek_steps;

/* Puts the steps of one run into out, which is emptied: the messages of the assistant from index first on, up to the
 * first of another role but EK_ROLE_TOOL. Returns the index behind the run. Linear time. */
int ek_order_run(ek_steps *out, const ek_conversation *c, const ek_pairs *p, int first);
void ek_steps_fini(ek_steps *s);

/* Does the block write anything of the content that is not white space? */
bool ek_block_shows(const ek_block *b);

/* Makes the JSON values that the chat template reads from a conversation. Inside src/chat. */

/* The list of messages for ek_chat_render, a new reference; c is not changed. The results of tools stand behind the
 * messages of their calls (order.h), the blocks of the assistant in the order in which the template can say them
 * (order.h): a message in which text follows calls, or calls follow visible text, becomes several, because the template
 * would write the text behind the results. A first system text that starts with "<|think|>" loses it and sets
 * *think_mark. EINVAL for a result whose call is nowhere; *out is then NULL. */
ek_err ek_template_messages(json_t **out, const ek_conversation *c, bool *think_mark);

/* Calls of one message that share an id, in a request as the chat template takes it. */

/* The template gives a result the name of the last call of its id; the server gives results to such calls in turn
 * (chat/order.h). Returns the request with an id of its own for each such call and its results, which pairs them as the
 * server does; NULL if no message has two calls of one id or without one, or if a result there answers no call: the
 * request is then what the template takes it for. The caller owns the result. n log n for n calls and results. */
json_t *ek_same_ids_apart(const json_t *request);

#endif
