/* A conversation in this process: history, tools, and one answer after another, printed as it
 * comes. For `run`. */
#ifndef EK_CLI_TURN_H
#define EK_CLI_TURN_H

#include <jansson.h>

#include "cli/open.h"
#include "text/chat.h"
#include "text/reply.h"

typedef struct ek_talk {
    const ek_cli *cli;
    ek_cli_model m;
    ek_tokenizer *tokenizer;
    ek_marks marks;
    ek_chat_variant variant;
    json_t *messages; /* owned */
    json_t *tools;    /* owned, NULL without */
    bool think;
} ek_talk;

ek_err ek_talk_open(ek_talk *t, const ek_cli *cli);
void ek_talk_close(ek_talk *t);
ek_err ek_talk_tools(ek_talk *t, const char *path); /* a JSON list of tools; replaces */
void ek_talk_reset(ek_talk *t);                     /* only the system message stays */

/* Adds {"role", "content"}, and tool_call_id unless NULL. */
void ek_talk_say(ek_talk *t, const char *role, const char *text, const char *call_id);

/* Lets the model answer what was said: content to standard output, reasoning to standard error,
 * both at once. Adds the answer to the history. *stop is looked at between tokens: set, it ends
 * the answer, and what came counts. calls gets the calls made, a list as in the API; the caller
 * owns it. EIO when standard output is closed. */
ek_err ek_talk_answer(ek_talk *t, const volatile int *stop, json_t **calls);

#endif
