/* Input lines of a person. On a terminal they are edited (libedit): cursor keys, history, Tab, and pasted text as one
 * block with its line ends, if the terminal marks it (bracketed paste). Elsewhere they are read unchanged.
 *
 * One at a time: an open editor owns the handlers of SIGINT, SIGWINCH and SIGCONT. */
#ifndef EK_CLI_RUN_EDITOR_H
#define EK_CLI_RUN_EDITOR_H

#include <stdbool.h>

#include "base/buf.h"

typedef struct ek_editor ek_editor;

/* Makes Ctrl-C end an answer, not the program; an open editor does it by itself. */
void ek_editor_catch(void);

/* Completes the line before the cursor: appends the possible texts from *from on to list, each with NUL. */
typedef void ek_complete_fn(ek_buf *list, const char *line, size_t cursor, size_t *from);

/* history: the file to read and write, or NULL; it need not exist, and an unusable file is ignored. */
ek_editor *ek_editor_open(const char *history, ek_complete_fn *complete);
void ek_editor_close(ek_editor *e); /* restores the terminal; NULL is allowed */

/* A line without its end, to be freed; pasted text may contain line ends. NULL at the end of input. "" after Ctrl-C.
 * The prompt is printed only on a terminal. */
char *ek_editor_read(ek_editor *e, const char *prompt);
/* Adds a message to the history; messages of several lines come back unchanged. */
void ek_editor_remember(ek_editor *e, const char *text);

/* Set by Ctrl-C; read and cleared by running work. */
extern volatile int ek_editor_interrupted;

#endif
