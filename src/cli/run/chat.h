/* A chat with a person, or with piped input: lines in, answers out; its commands, and its file. */
#ifndef EK_CLI_RUN_CHAT_H
#define EK_CLI_RUN_CHAT_H

#include <stdio.h>

#include "cli/run/dialogue.h"

/* --- typed paths --- */

/* Bytes of the word at text: up to the next blank outside quotes and without a backslash. */
size_t ek_typed_word(const char *text);
/* Appends the path in text: without quotes and backslashes, with the home folder for ~, unless a file has exactly that
 * name. */
void ek_typed_path(ek_buf *out, const char *text);
/* Whether a line begins with an existing path. */
bool ek_typed_is_path(const char *line);
/* Attaches the pictures, sounds and videos named in text to the next message, and prints that to `to`. rest gets the
 * text with names instead of paths, without paths at its ends. Returns their number. */
int ek_chat_take_media(ek_dialogue *d, FILE *to, const char *text, ek_buf *rest);

/* Completes the line before the cursor: appends the possible texts from *from on to list, each with NUL. */
void ek_chat_complete(ek_buf *list, const char *line, size_t cursor, size_t *from);

/* --- commands and files --- */

/* State that commands change; commands are lines that begin with a slash. */
typedef struct ek_chat {
    ek_dialogue *d;
    bool stats; /* figures follow each answer */
    bool ended; /* /quit */
    int status; /* after /quit: 0, or 1 if the model is lost */
} ek_chat;

/* Whether a line begins with one of the commands. */
bool ek_chat_knows(const char *line);
const char *ek_chat_name(int i); /* name of command i; NULL after the last */
const char *ek_chat_setting(int i);
/* Runs the command of a line and prints the result. */
void ek_chat_command(ek_chat *c, const char *line);

/* A conversation in a file is a body of OpenAI's Chat Completions ({"model", "messages", "tools"}), so servers and
 * `run` can continue each other's conversations.
 *
 * Replaces the file, with its owner's rights only. EIO. *n: number of messages. */
ek_err ek_chat_save(const ek_dialogue *d, const char *path, int *n);
/* Replaces conversation, system message and, if the file has some, tools. A list of messages alone is accepted. EIO,
 * ENOTFOUND, EPARSE, EINVAL name the file and the fault; the dialogue is then unchanged. */
ek_err ek_chat_load(ek_dialogue *d, const char *path, int *n);

#endif
