/* A conversation in a file: a body of OpenAI's Chat Completions ({"model", "messages", "tools"}), so that what was said
 * here can be sent to a server as it is, and the other way round. */
#ifndef EK_CLI_RUN_SAVED_H
#define EK_CLI_RUN_SAVED_H

#include "cli/run/dialogue.h"

/* Replaces the file; with its owner's rights alone. EIO. *n: messages. */
ek_err ek_chat_save(const ek_dialogue *d, const char *path, int *n);
/* Replaces conversation, system message and, where the file has some, tools. A list of messages alone will do. EIO,
 * ENOTFOUND, EPARSE, EINVAL name the file and what is wrong in it; the dialogue is then as before. */
ek_err ek_chat_load(ek_dialogue *d, const char *path, int *n);

#endif
