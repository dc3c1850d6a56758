/* Loops of the model: tokens that repeat, and a call that is made again and again. It looks at what was sampled and
 * changes nothing of it. Zero-initialise ek_loops. */
#ifndef EK_CHAT_LOOPS_H
#define EK_CHAT_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chat/conversation.h"

enum {
    EK_LOOP_TOKENS = 200,  /* so many tokens repeat, */
    EK_LOOP_PERIOD = 50,   /* with a period of at most so many: they were written four times at least */
    EK_LOOP_CALLS = 4,     /* times that one call is made with the same arguments */
    EK_LOOP_OWN_CALLS = 64 /* the latest of a reply are compared */
};

typedef enum ek_loop_kind { EK_LOOP_NONE, EK_LOOP_OF_TOKENS, EK_LOOP_OF_CALLS } ek_loop_kind;

/* The calls of a conversation, as numbers, in ascending order. Owned. */
typedef struct ek_past_calls {
    uint64_t *of;
    int n;
} ek_past_calls;

/* Names and arguments count, arguments by their values: white space and the order of members do not. */
void ek_past_calls_make(ek_past_calls *out, const ek_conversation *c);
void ek_past_calls_fini(ek_past_calls *p);

typedef struct ek_loops {
    int32_t last[EK_LOOP_PERIOD];      /* a ring */
    int run[EK_LOOP_PERIOD + 1];       /* by period: how many of the latest tokens are the one that long ago */
    uint64_t calls[EK_LOOP_OWN_CALLS]; /* of this reply, a ring */
    int n, n_calls;
} ek_loops;

/* Feeds a token. The shortest period with which the latest EK_LOOP_TOKENS tokens repeat; 0: they do not. */
int ek_loops_token(ek_loops *l, int32_t token);
/* Feeds a call that has ended. Whether it was made EK_LOOP_CALLS times, with past ones; past: NULL for none. args: JSON
 * text. */
bool ek_loops_call(ek_loops *l, const ek_past_calls *past, const char *name, const char *args, size_t n);

#endif
