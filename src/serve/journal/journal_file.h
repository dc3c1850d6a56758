/* A journal read from disk: where its lines are, and one at a time. The file may grow meanwhile; what was there at open
 * counts. One thread. */
#ifndef EK_SERVE_JOURNAL_FILE_H
#define EK_SERVE_JOURNAL_FILE_H

#include "serve/journal/journal_line.h"

typedef struct ek_journal_file ek_journal_file;

enum { EK_JOURNAL_LINES_MAX = 10000000 };

/* ENOTFOUND, EIO; ETOOLARGE for more than EK_JOURNAL_LINES_MAX lines, ENOMEM. Reads the file once, in linear time;
 * holds 24 bytes per line. Empty lines are none. */
ek_err ek_journal_file_open(ek_journal_file **out, const char *path);
void ek_journal_file_close(ek_journal_file *f); /* NULL is allowed */
int64_t ek_journal_file_lines(const ek_journal_file *f);
int64_t ek_journal_file_number(const ek_journal_file *f, int64_t i); /* of line i in the file, from 1 */
/* Line i from 0, as ek_journal_line_read, with the form of the line that form_of names (has_bounds is false where that
 * is not there). An error says "PATH line N: …", N its number in the file. EIO also. */
ek_err ek_journal_file_read(ek_journal_file *f, int64_t i, ek_journal_line *l);

#endif
