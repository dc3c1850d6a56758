/* A person's terminal: its width, lines that are rewritten in place, text wrapped at words, text from others, and
 * signals that stop long work. Inside src/cli. */
#ifndef EK_CLI_FRAME_TERMINAL_H
#define EK_CLI_FRAME_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"

/* Present columns of the terminal; a resized window counts at the next call. 80 if unknown; 0: `to` is no terminal. */
int ek_cli_columns(FILE *to);
/* Columns of n bytes of text: wide characters have two, combining marks none. */
int ek_cli_width(const char *text, size_t n);

/* A line that is rewritten in place, truncated so that it stays one line in a window of any width. text is plain,
 * without escape sequences; `before` and `behind` may have them and take no columns ("\033[2m"). */
void ek_cli_status(FILE *to, const char *before, const char *text, const char *behind);
void ek_cli_status_clear(FILE *to);

/* A part of such a line; if there is no room, parts of the highest rank are left out first. */
typedef struct ek_field {
    char text[48];
    int rank; /* 0: always stays, truncated if necessary */
} ek_field;
/* Joins the fields that fit into `columns`, two blanks between; returns the used columns. */
int ek_cli_fit(ek_buf *out, int columns, const ek_field *field, int n);

/* Writes such a line after a bar, if there is room for one, that is filled to a fraction: "[######....]   42 %  1.43 GB
 * of 3.40 GB  0:43 left". */
void ek_cli_status_bar(FILE *to, double fraction, const ek_field *field, int n);
/* "1:05:09", "0:43" */
void ek_cli_time_text(char out[16], double seconds);

/* Text that arrives in pieces: wrapped at words on a terminal, unchanged elsewhere. Zero-initialise. */
typedef struct ek_wrap {
    int column; /* column of the next character */
    ek_buf gap, word;
} ek_wrap;
/* Writes n bytes of whole characters; a word is written once it is complete. On a terminal text is escaped, except line
 * ends and tabs. ek_wrap_end writes the rest and frees. False if it could not be written. */
bool ek_wrap_put(ek_wrap *w, FILE *to, const char *text, size_t n);
bool ek_wrap_end(ek_wrap *w, FILE *to);

/* Prints text escaped (base/log.h): it can neither break a line nor control a terminal. */
void ek_cli_put(FILE *to, const char *text);

/* Prints a model's text, n bytes of whole characters: unchanged, but escaped and wrapped on a terminal. Returns false
 * if it could not be written. */
bool ek_cli_put_answer(FILE *to, const char *text, size_t n);

/* Whether the reader of standard output has closed it (head, a pager). This is not a failure of the program. */
bool ek_cli_reader_left(void);

/* Reads a line from standard input, without its end; to be freed. NULL at the end of input. */
char *ek_cli_answer(void);
bool ek_cli_yes(void); /* reads an answer and returns whether it is y or yes */
bool ek_cli_is_yes(const char *answer);
bool ek_cli_is_no(const char *answer); /* "", n or no */

/* Calls stop for SIGINT, SIGTERM and SIGHUP, with the flags of sigaction; an ignored signal, as under nohup, stays
 * ignored. */
void ek_cli_on_stop(void (*stop)(int number), int flags);

#endif
