/* Lines that a person types. In a terminal they are edited (libedit): cursor keys, history, Tab, and text that is
 * pasted as one block, with the ends of its lines, where the terminal marks it (bracketed paste). Elsewhere they are
 * read as they are.
 *
 * One at a time: the handlers of SIGINT, SIGWINCH and SIGCONT belong to it while it is open. */
#ifndef EK_CLI_RUN_EDITOR_H
#define EK_CLI_RUN_EDITOR_H

#include <stdbool.h>

#include "base/buf.h"

typedef struct ek_editor ek_editor;

/* Whether standard input and output are a terminal that can be edited on: TERM is not unset, and not "dumb". */
bool ek_editor_can(void);

/* Ctrl-C ends an answer, not the program; an editor does it by itself. */
void ek_editor_catch(void);

/* Completes the line before the cursor: appends what may stand from *from on to list, each with a NUL. */
typedef void ek_complete_fn(ek_buf *list, const char *line, size_t cursor, size_t *from);

/* history: the file to read and to write, NULL for none; it need not be there, and a file that cannot be used is not
 * used. */
ek_editor *ek_editor_open(const char *history, ek_complete_fn *complete);
void ek_editor_close(ek_editor *e); /* the terminal is as it was; NULL is fine */

/* A line without its end, to be freed; pasted ones may have line ends in them. NULL at the end of input. "" after
 * Ctrl-C. The prompt is for people: nothing of it is written where input is no terminal. */
char *ek_editor_read(ek_editor *e, const char *prompt);
/* Puts a message into the history; messages of several lines come back as they were. */
void ek_editor_remember(ek_editor *e, const char *text);

/* Set by Ctrl-C, read and cleared by whoever works meanwhile. */
extern volatile int ek_editor_interrupted;

#endif
