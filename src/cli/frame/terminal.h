/* A person at a terminal: its width, lines that are written again and again, text that is wrapped at words, text that
 * others wrote, and signals that ask long work to stop. Inside src/cli. */
#ifndef EK_CLI_FRAME_TERMINAL_H
#define EK_CLI_FRAME_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"

/* Columns of the terminal, as it is now: a changed window counts with the next call. 80 where it does not say; 0: to is
 * no terminal. */
int ek_cli_columns(FILE *to);
/* Columns that n bytes of text take: wide characters have two, marks that stand above others none. */
int ek_cli_width(const char *text, size_t n);

/* One line that is written again and again. It is cut so that it stays on its line in a window of any width. text is
 * plain: bytes that a terminal obeys are not in it, but for `before` and `behind`, which take no room ("\033[2m"). */
void ek_cli_status(FILE *to, const char *before, const char *text, const char *behind);
void ek_cli_status_clear(FILE *to);

/* A part of such a line; those with the highest rank go first where there is no room. */
typedef struct ek_field {
    char text[48];
    int rank; /* 0: stays, cut if it must be */
} ek_field;
/* Joins those that fit into this many columns, two blanks between; returns the columns taken. */
int ek_cli_fit(ek_buf *out, int columns, const ek_field *field, int n);

/* Such a line of parts behind a bar that is full to a fraction, where there is room for one:
 * "[######....]   42 %  1.43 GB of 3.40 GB  0:43 left". */
void ek_cli_status_bar(FILE *to, double fraction, const ek_field *field, int n);
/* "1:05:09", "0:43" */
void ek_cli_time_text(char out[16], double seconds);

/* Text that comes in pieces, wrapped at words on a terminal and as it is elsewhere. Zero-initialise. */
typedef struct ek_wrap {
    int column; /* where the next character would stand */
    ek_buf gap, word;
} ek_wrap;
/* n bytes of whole characters; a word is written once it is whole. Escaped on a terminal, lines and tabs apart.
 * ek_wrap_end writes the rest and frees. False where it could not be written. */
bool ek_wrap_put(ek_wrap *w, FILE *to, const char *text, size_t n);
bool ek_wrap_end(ek_wrap *w, FILE *to);

/* Prints text, escaped (base/log.h): it neither breaks a line nor speaks to a terminal. */
void ek_cli_put(FILE *to, const char *text);

/* What a model writes, n bytes of whole characters: as it is, but escaped and wrapped on a terminal. Returns false if
 * it could not be written. */
bool ek_cli_put_answer(FILE *to, const char *text, size_t n);

/* Whether whoever read standard output has closed it: head, a pager that was left. No failure of ours. */
bool ek_cli_reader_left(void);

/* Reads a line from standard input, without its end; to be freed. NULL at the end of input. */
char *ek_cli_answer(void);
bool ek_cli_yes(void); /* reads an answer: whether it is y or yes */
bool ek_cli_is_yes(const char *answer);
bool ek_cli_is_no(const char *answer); /* "", n or no */

/* Calls stop for SIGINT, SIGTERM and SIGHUP, with the flags of sigaction; one that is ignored, as under nohup, stays
 * so. */
void ek_cli_on_stop(void (*stop)(int number), int flags);

#endif
