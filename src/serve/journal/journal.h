/* The journal: a file with a line per reply, written by its own thread.
 *
 * The server never waits for it: pending lines are limited, and further ones are dropped and counted. A full disk or a
 * broken file costs lines and is logged once; when writing works again, a line {"lost":N} replaces them. The file is
 * only appended to. After it was renamed or removed (logrotate), the next line begins a new file. */
#ifndef EK_SERVE_JOURNAL_H
#define EK_SERVE_JOURNAL_H

#include "base/buf.h"
#include "chat/turn.h"

/* --- a line: a reply with the digest of its logits, one JSON object; its members: docs/PROOF.md --- */

enum { EK_JOURNAL_LINE_MAX = 256 << 20 }; /* bytes; longer lines are not read */

typedef struct ek_journal_line {
    int64_t lost;         /* above 0: the line only says how many lines were lost before it */
    double time;          /* seconds since 1970, when the reply ended */
    const char *id;       /* the reply's id; each of several choices has a line */
    const char *trace;    /* the request's trace (traceparent); NULL: none */
    const char *api;      /* the request's path */
    const char *model;    /* ek_model_digest */
    const char *numerics; /* ek_model_numerics_id */
    const char *finish;   /* a word for ek_turn_end */
    int choice, n_cached, n_tokens;
    uint64_t digest;    /* the digest of all logits of the reply's tokens */
    int digest_version; /* EK_DIGEST_VERSION of the program that wrote the line; lines without it: 1 */
    ek_record record;   /* same_form: the form of the earlier line of choice 0 with the same id */
} ek_journal_line;

/* Appends the line with its newline. */
void ek_journal_line_write(ek_buf *out, const ek_journal_line *l);

/* Reads a line of n bytes without newline. Zeroes l first; l owns its texts and record. EPARSE for a line that is not
 * JSON; EINVAL names a missing or wrong member. Writing an accepted line gives equal values. Call ek_journal_line_fini
 * also after a failure. */
ek_err ek_journal_line_read(ek_journal_line *l, const char *text, size_t n);
void ek_journal_line_fini(ek_journal_line *l); /* only for a line that was read */

/* --- writing --- */

typedef struct ek_journal ek_journal;

typedef struct ek_journal_opts {
    const char *path;             /* made with mode 0600 if it does not exist; copied */
    const char *model, *numerics; /* the same in every line: ek_model_digest, ek_model_numerics_id; copied */
    bool prompts;                 /* lines also hold the tokens of prompt and reply */
    size_t max_pending;           /* maximum pending bytes; 0: 64 MiB */
} ek_journal_opts;

/* EIO if the file cannot be opened for writing; ENOMEM without a thread. */
ek_err ek_journal_open(ek_journal **out, const ek_journal_opts *opts);
void ek_journal_close(ek_journal *j); /* writes pending lines; NULL is allowed */

/* The mode in which turns have to record; EK_RECORD_NONE if j is NULL. Turns also have to compute digests. */
ek_record_mode ek_journal_mode(const ek_journal *j);
/* Hands over a line without time, model and numerics: copies id and api, takes the record. finish: a literal. Any
 * thread; returns at once. */
void ek_journal_add(ek_journal *j, const ek_journal_line *line);
/* The same for all turns of a request, which have ended, choice 0 first: their lines stand together in the file, or
 * none is written. trace: "" without. Takes their records. Nothing happens if j is NULL; turns that were never
 * submitted have no line. id of the reply, api: the path of the request. */
void ek_journal_turns(ek_journal *j, const char *id, const char *api, const char *trace, ek_turn *const *turns, int n);
int64_t ek_journal_lost(ek_journal *j); /* lost lines so far; 0 if j is NULL */

/* --- reading --- */

/* An index of a journal's lines on disk. Lines that are appended after opening do not count. One thread. */
typedef struct ek_journal_file ek_journal_file;

enum { EK_JOURNAL_LINES_MAX = 10000000 };

/* ENOTFOUND, EIO; ETOOLARGE for more than EK_JOURNAL_LINES_MAX lines, ENOMEM. Reads the file once, in linear time;
 * holds 24 bytes per line. Empty lines are skipped. */
ek_err ek_journal_file_open(ek_journal_file **out, const char *path);
void ek_journal_file_close(ek_journal_file *f); /* NULL is allowed */
int64_t ek_journal_file_lines(const ek_journal_file *f);
int64_t ek_journal_file_number(const ek_journal_file *f, int64_t i); /* of line i in the file, from 1 */
/* Reads line i, from 0, like ek_journal_line_read, with the form of the line that form_of names (has_bounds is false if
 * that line is missing). Also EIO. */
ek_err ek_journal_file_read(ek_journal_file *f, int64_t i, ek_journal_line *l);

#endif
