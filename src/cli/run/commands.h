/* The commands of a chat: lines that begin with a slash. */
#ifndef EK_CLI_RUN_COMMANDS_H
#define EK_CLI_RUN_COMMANDS_H

#include "cli/run/dialogue.h"

typedef struct ek_chat {
    ek_dialogue *d;
    bool stats; /* a line with the speed after an answer */
    bool ended; /* /quit */
    int status; /* then: 0, or 1 where the model is lost */
} ek_chat;

/* Whether a line begins with one of the commands. */
bool ek_chat_knows(const char *line);
/* Does what the line says, and says what it did. */
void ek_chat_command(ek_chat *c, const char *line);

#endif
