/* The order in which the chat template can say what the assistant wrote and the results of its tools. Inside src/chat.
 *
 * In the template the results of calls follow the message of the calls, and what comes behind them is in the same turn
 * of the model. So what the model wrote keeps its order where the results of the calls before it can be said first:
 * behind results that were there, and between calls of which each group has results. What stands between a call and
 * its result, and was the last thing said before the result came, goes before the calls: behind the result it would
 * end the turn, and the next turn would glue to it. That place stays the same while the conversation grows. */
#ifndef EK_CHAT_ORDER_H
#define EK_CHAT_ORDER_H

#include "chat/pairs.h"

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

#endif
