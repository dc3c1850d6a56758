/* Detects loops of the model: repeating tokens, and a call that is made again and again. Detection changes no token.
 * Zero-initialise ek_loops. */
#ifndef EK_CHAT_LOOPS_H
#define EK_CHAT_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chat/conversation.h"

enum {
    EK_LOOP_TOKENS = 200,  /* length of a loop of tokens */
    EK_LOOP_PERIOD = 50,   /* maximum period, so the tokens were repeated four times at least */
    EK_LOOP_CALLS = 4,     /* equal calls, by name and arguments */
    EK_LOOP_OWN_CALLS = 64 /* compared calls of a reply, the latest ones */
};

typedef enum ek_loop_kind { EK_LOOP_NONE, EK_LOOP_OF_TOKENS, EK_LOOP_OF_CALLS } ek_loop_kind;

/* Hashes of a conversation's calls, ascending. Owned. */
typedef struct ek_past_calls {
    uint64_t *of;
    int n;
} ek_past_calls;

/* Hashes names and the values of arguments; white space and the order of members do not matter. */
void ek_past_calls_make(ek_past_calls *out, const ek_conversation *c);
void ek_past_calls_fini(ek_past_calls *p);

typedef struct ek_loops {
    int32_t last[EK_LOOP_PERIOD];      /* a ring */
    int run[EK_LOOP_PERIOD + 1];       /* [period]: number of latest tokens equal to the token one period earlier */
    uint64_t calls[EK_LOOP_OWN_CALLS]; /* hashes of this reply's calls, a ring */
    int n, n_calls;
} ek_loops;

/* Feeds a token. Returns the shortest period of the latest EK_LOOP_TOKENS tokens, or 0 without one. */
int ek_loops_token(ek_loops *l, int32_t token);
/* Feeds an ended call; args: JSON text. Returns whether it was made EK_LOOP_CALLS times, past calls (may be NULL)
 * included. */
bool ek_loops_call(ek_loops *l, const ek_past_calls *past, const char *name, const char *args, size_t n);

#endif
