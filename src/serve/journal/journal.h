/* The journal: a file that gets a line (serve/journal/journal_line.h) per reply, written by a thread of its own.
 *
 * It never holds the server up: what waits to be written is limited, lines beyond that are dropped and counted. A full
 * disk or a broken file costs lines, is logged once, and is over when writing works again; a line {"lost":N} then
 * stands in their place. The file is only appended to. Whoever renames or removes it (logrotate) gets a new one of the
 * same name with the next line. */
#ifndef EK_SERVE_JOURNAL_H
#define EK_SERVE_JOURNAL_H

#include "chat/turn.h"
#include "serve/journal/journal_line.h"

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
 * none is written. Takes their records. Nothing happens if j is NULL; turns that were never submitted have no line. id
 * of the reply, api: the path of the request. */
void ek_journal_turns(ek_journal *j, const char *id, const char *api, ek_turn *const *turns, int n);
int64_t ek_journal_lost(ek_journal *j); /* lines so far that could not be written or waited in vain; 0 if j is NULL */

#endif
