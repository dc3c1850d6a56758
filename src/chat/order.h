/* The order in which the chat template writes the assistant's text, its calls and the results of its tools, and the
 * JSON values that the template reads. Inside src/chat.
 *
 * In the template the results of calls follow the message of the calls, and text after them belongs to the same turn of
 * the model. The model's output keeps its order if the results of earlier calls can be written first: after given
 * results, and between groups of calls that have results. One text moves: the last text between a call and its result
 * goes before the calls, because after the result it would end the turn, and the next turn would join it. Its position
 * does not change while the conversation grows. */
#ifndef EK_CHAT_ORDER_H
#define EK_CHAT_ORDER_H

#include <jansson.h>

#include "chat/conversation.h"

/* Finds the call that each tool result answers, wherever the result stands. Inside src/chat. */

typedef struct ek_pair_call {
    const ek_block *block;
    int message;       /* index of its message */
    int first, last;   /* its results: messages of EK_ROLE_TOOL, ascending, linked by ek_pairs.next; -1: none */
    int before, after; /* the nearest calls of the same id; -1: none, or the call has no id */
} ek_pair_call;

/* Zero-initialise; ek_pairs_fini when done. The conversation is borrowed. */
typedef struct ek_pairs {
    ek_pair_call *calls; /* in order */
    int n_calls;
    int *next;       /* per message: the next result of the same call; -1: none. NULL without results */
    int *first_call; /* per message: index of its first call, or of the first later call */
} ek_pairs;

/* Calls are those of all messages except tools' messages. A result answers the nearest open call of its id before it
 * (of several in one message the first); without an open one, the nearest call; without any call before it, the nearest
 * open one after it. Ids are compared as bytes. A result without an id answers the nearest open call before it, by its
 * name if it has one and such a call exists. A result with an unknown id answers the nearest open call without an id.
 * EINVAL for a result without a call, with its id. n log n for n calls and results. Call ek_pairs_fini in any case. */
ek_err ek_pairs_make(ek_pairs *p, const ek_conversation *c);
void ek_pairs_fini(ek_pairs *p);

typedef struct ek_order_step {
    const ek_message *message;
    const ek_block *block; /* NULL: the message has no block */
    int call;              /* index in pairs->calls; -1: no call */
    bool joins;            /* belongs to the same message of the template as the previous step */
    bool closes;           /* the results of its call, and of the calls it joins, follow it */
} ek_order_step;

typedef struct ek_steps {
    ek_order_step *at;
    int n, cap;
} ek_steps;

/* Writes the steps of one run to out, which is emptied first. A run is the assistant's messages from index `first` to
 * the first message of a role other than EK_ROLE_TOOL. Returns the index after the run. Linear time. */
int ek_order_run(ek_steps *out, const ek_conversation *c, const ek_pairs *p, int first);
void ek_steps_fini(ek_steps *s);

/* Whether the block writes any content besides white space. */
bool ek_block_shows(const ek_block *b);

/* --- the JSON values that the chat template reads --- */

/* The list of messages for ek_chat_render, a new reference; c is not changed. Results of tools follow the messages of
 * their calls, and the assistant's blocks are in the order described above. A message in which text follows calls, or
 * calls follow visible text, becomes several, because the template would write the text after the results. A first
 * system text that starts with "<|think|>" loses it and sets *think_mark. EINVAL for a result without a call; *out is
 * then NULL. */
ek_err ek_template_messages(json_t **out, const ek_conversation *c, bool *think_mark);

/* --- calls of one message that share an id, in a request in the template's form --- */

/* The template gives a result the name of the last call of its id; the server assigns results to such calls in turn.
 * Returns the request with a new id for each such call and its results, so that the template pairs them like the
 * server. NULL if no message has two calls of one id or without an id, or if a result answers no call; the request is
 * then used unchanged. The caller owns the result. n log n for n calls and results. */
json_t *ek_same_ids_apart(const json_t *request);

#endif
