/* A dialogue of `run`: model, history and tools in this process; answers are printed as they come. */
#ifndef EK_CLI_DIALOGUE_H
#define EK_CLI_DIALOGUE_H

#include "chat/conversation.h"
#include "chat/prompt.h"
#include "cli/frame/open.h"

typedef struct ek_dialogue {
    const ek_cli *cli;
    ek_opened m;
    ek_conversation history;
    json_t *tools; /* owned; NULL: none */
    bool think;
} ek_dialogue;

/* ek_dialogue_close also after a failure. */
ek_err ek_dialogue_open(ek_dialogue *d, const ek_cli *cli);
void ek_dialogue_close(ek_dialogue *d);
ek_err ek_dialogue_tools(ek_dialogue *d, const char *path); /* a JSON list of tools; replaces */
void ek_dialogue_reset(ek_dialogue *d);                     /* removes all but the system message */

/* Adds a message to the history. call: NULL, or the call that this message of EK_ROLE_TOOL answers. */
void ek_dialogue_add(ek_dialogue *d, ek_role role, const char *text, const ek_block *call);

/* Lets the model answer: content to standard output, reasoning to standard error, both at once. Adds the
 * answer to the history, as its last message. *stop is read between tokens: when it is set, the
 * answer ends with the text so far. EIO when standard output is closed. */
ek_err ek_dialogue_answer(ek_dialogue *d, const volatile int *stop);

#endif
