/* A chat with a person, or with what is piped in: lines in, answers out. */
#ifndef EK_CLI_RUN_CHAT_H
#define EK_CLI_RUN_CHAT_H

#include "cli/run/dialogue.h"

/* One message, one answer. The exit status: 130 after Ctrl-C. */
int ek_chat_once(ek_dialogue *d, const char *prompt);
/* Until the end of input or /quit. The exit status. */
int ek_chat_run(ek_dialogue *d);

#endif
