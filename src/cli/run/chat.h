/* A chat with a person, or with what is piped in: lines in, answers out; its commands, and its file. */
#ifndef EK_CLI_RUN_CHAT_H
#define EK_CLI_RUN_CHAT_H

#include <stdio.h>

#include "cli/run/dialogue.h"

/* One message, one answer. The exit status: 130 after Ctrl-C. */
int ek_chat_once(ek_dialogue *d, const char *prompt);
/* Until the end of input or /quit. *said: the first line, which was read already, and is taken over; NULL: none. The
 * exit status. */
int ek_chat_run(ek_dialogue *d, char **said);

/* ------------------------------------------------------------------ typed paths */

/* Bytes of the word at text: up to the next blank that no quote or backslash covers. */
size_t ek_typed_word(const char *text);
/* Appends the path that a person means by all of text: without quotes and backslashes, with the home for ~, unless a
 * file has just that name. */
void ek_typed_path(ek_buf *out, const char *text);
/* Whether a line begins with the path of something that is there. */
bool ek_typed_is_path(const char *line);
/* Attaches the pictures, sounds and videos whose paths stand in text to the next message, and says so on `to`; rest
 * gets the text, with names in place of paths, and without those at its ends. Returns how many. */
int ek_chat_take_media(ek_dialogue *d, FILE *to, const char *text, ek_buf *rest);

/* Completes the line before the cursor: appends what may stand from *from on to list, each with a NUL. */
void ek_chat_complete(ek_buf *list, const char *line, size_t cursor, size_t *from);

/* ------------------------------------------------------------------ commands and files */

/* What commands change: lines that begin with a slash. */
typedef struct ek_chat {
    ek_dialogue *d;
    bool stats; /* figures after an answer */
    bool ended; /* /quit */
    int status; /* then: 0, or 1 where the model is lost */
} ek_chat;

/* Whether a line begins with one of the commands. */
bool ek_chat_knows(const char *line);
const char *ek_chat_name(int i); /* of the command i, NULL behind the last */
const char *ek_chat_setting(int i);
/* Does what the line says, and says what it did. */
void ek_chat_command(ek_chat *c, const char *line);

/* A conversation in a file is a body of OpenAI's Chat Completions ({"model", "messages", "tools"}), so that a server
 * takes what was said here, and the other way round.
 *
 * Replaces the file; with its owner's rights alone. EIO. *n: messages. */
ek_err ek_chat_save(const ek_dialogue *d, const char *path, int *n);
/* Replaces conversation, system message and, where the file has some, tools. A list of messages alone will do. EIO,
 * ENOTFOUND, EPARSE, EINVAL name the file and what is wrong in it; the dialogue is then as before. */
ek_err ek_chat_load(ek_dialogue *d, const char *path, int *n);

#endif
