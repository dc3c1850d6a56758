/* The journal: a file that gets a line per reply, written by a thread of its own.
 *
 * It never holds the server up: what waits to be written is limited, lines beyond that are dropped and counted. A full
 * disk or a broken file costs lines, is logged once, and is over when writing works again; a line {"lost":N} then
 * stands in their place. The file is only appended to. Whoever renames or removes it (logrotate) gets a new one of the
 * same name with the next line. */
#ifndef EK_SERVE_JOURNAL_H
#define EK_SERVE_JOURNAL_H

#include "base/buf.h"
#include "chat/record.h"
#include "chat/turn.h"

/* --- a line: a reply with the digest of its logits, one JSON object; its members: docs/PROOF.md --- */

enum { EK_JOURNAL_LINE_MAX = 256 << 20 }; /* bytes; longer lines are not read */

typedef struct ek_journal_line {
    int64_t lost;         /* above 0: the line only says that so many lines before it could not be written */
    double time;          /* seconds since 1970, when the reply ended */
    const char *id;       /* of the reply; of several choices each has a line */
    const char *trace;    /* of the request (traceparent); NULL: none */
    const char *api;      /* the path it was asked at */
    const char *model;    /* ek_model_digest */
    const char *numerics; /* ek_model_numerics_id */
    const char *finish;   /* a word for ek_turn_end */
    int choice, n_cached, n_tokens;
    uint64_t digest;    /* of the logits that the n_tokens were taken from */
    int digest_version; /* EK_DIGEST_VERSION of the program that wrote the line; lines without it: 1 */
    ek_record record;   /* same_form: of the line of choice 0 with the same id, which stands before this one */
} ek_journal_line;

/* Appends the line with its end. */
void ek_journal_line_write(ek_buf *out, const ek_journal_line *l);

/* Reads a line of n bytes, without its end. l is zeroed first; its texts and record are owned by it. EPARSE for what is
 * not JSON; EINVAL names the member that is missing or wrong. What it accepts, write gives back equal in
 * value. ek_journal_line_fini also after a failure. */
ek_err ek_journal_line_read(ek_journal_line *l, const char *text, size_t n);
void ek_journal_line_fini(ek_journal_line *l); /* only for what read has filled */

/* --- writing --- */

typedef struct ek_journal ek_journal;

typedef struct ek_journal_opts {
    const char *path;             /* made with mode 0600 if it does not exist; copied */
    const char *model, *numerics; /* of every line: ek_model_digest, ek_model_numerics_id; copied */
    bool prompts;                 /* tokens of prompt and reply, too */
    size_t max_pending;           /* bytes that may wait; 0: 64 MiB */
} ek_journal_opts;

/* EIO where the file cannot be opened for writing now; ENOMEM without a thread. */
ek_err ek_journal_open(ek_journal **out, const ek_journal_opts *opts);
void ek_journal_close(ek_journal *j); /* writes what waits; NULL is allowed */

/* What turns have to record; EK_RECORD_NONE if j is NULL. They also have to compute digests. */
ek_record_mode ek_journal_mode(const ek_journal *j);
/* Hands over a line without time, model and numerics: copies id and api, takes the record. finish: a literal. Any
 * thread; returns at once. */
void ek_journal_add(ek_journal *j, const ek_journal_line *line);
/* The same for all turns of a request, which have ended, choice 0 first: their lines stand together in the file, or
 * none is written. trace: "" without. Takes their records. Nothing happens if j is NULL; turns that were never
 * submitted have no line. id of the reply, api: the path of the request. */
void ek_journal_turns(ek_journal *j, const char *id, const char *api, const char *trace, ek_turn *const *turns, int n);
int64_t ek_journal_lost(ek_journal *j); /* lines so far that could not be written or waited in vain; 0 if j is NULL */

/* --- reading --- */

/* A journal on disk: where its lines are, and one at a time. The file may grow meanwhile; what was there at open
 * counts. One thread. */
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
