/* One line of a journal: a reply of the server with the digest of its logits, as one JSON object. Pure functions. The
 * members are described in docs/PROOF.md. */
#ifndef EK_SERVE_JOURNAL_LINE_H
#define EK_SERVE_JOURNAL_LINE_H

#include "base/buf.h"
#include "chat/record.h"

enum { EK_JOURNAL_LINE_MAX = 256 << 20 }; /* bytes; longer lines are not read */

typedef struct ek_journal_line {
    int64_t lost;         /* above 0: the line only says that so many lines before it could not be written */
    double time;          /* seconds since 1970, when the reply ended */
    const char *id;       /* of the reply; of several choices each has a line */
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

#endif
