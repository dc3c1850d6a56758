/* A cassette: stored replies as a file of JSON lines, sorted by key, without times, so that one store gives one file.
 *
 *   {"evenkeel_replies":1,"identity":"model …, ek3 …"}                      begins a section: whose replies follow
 *   {"key":…,"ask":{…},"tokens":[…],"rows":…,"probs":null,"sum":…,"text":…}  a reply
 *   {"entries":2,"sum":…,"key":…,"signature":…}  ends the section: SHA-256 over its sums; the last two if it is signed
 *
 * key is the content key (replies/key.h), computed again when the line is read; ask stands in replies/ask.h; rows are
 * 8 bytes each in base64; probs are null or those of replies/record.h in base64, of the first tokens; sum is the
 * SHA-256 of the line up to it, as ek_cassette_line spells it; text is for people. Sums find damage; a forger can make
 * them, but no signature. Owners and salts are never written. */
#ifndef EK_REPLIES_CASSETTE_H
#define EK_REPLIES_CASSETTE_H

#include "base/buf.h"
#include "base/hash/hash.h"
#include "replies/replies.h"

enum { EK_CASSETTE_VERSION = 1, EK_CASSETTE_LINE = 64 << 20 }; /* bytes of a line at most */

/* --- a line --- */

/* Appends the line of a record, which has an ask, with its end. text: for people, NULL without. EINVAL: it has no ask.
 * EFORMAT: the ask is none. *key: the content key; *sum: as it stands in the line. NULL: nobody asks. */
ek_err ek_cassette_line(ek_buf *out, const ek_reply_record *r, const char *identity, const ek_buf *text,
                        ek_reply_key *key, char sum[65]);
/* Reads one, without its end: a record whose key is the content key, with its ask if with_ask. One reference. EFORMAT:
 * it is none, is damaged, or is of another request than its key, with the reason; EPARSE: no JSON. */
ek_err ek_cassette_line_read(ek_reply_record **out, const char *line, size_t n, const char *identity, int n_vocab,
                             bool with_ask, char sum[65]);

/* Appends the line that begins a section, and the one that ends it. */
void ek_cassette_head(ek_buf *out, const char *identity);
typedef struct ek_cassette_end {
    size_t entries;
    ek_sha256_state sums;
} ek_cassette_end;
void ek_cassette_end_init(ek_cassette_end *e);
void ek_cassette_end_add(ek_cassette_end *e, const char sum[65]);
/* Who signs: appends the base64 of a signature of the message, and says whose it is. */
typedef struct ek_cassette_signer {
    ek_err (*sign)(void *arg, ek_buf *signature, const void *message, size_t n);
    void *arg;
    const char *key; /* hexadecimal */
} ek_cassette_signer;
/* signer: NULL for none. Errors of sign; nothing is appended then. */
ek_err ek_cassette_end_line(ek_buf *out, const char *identity, ek_cassette_end *e, const ek_cassette_signer *signer);

/* --- a file --- */

typedef struct ek_cassette_read {
    int n_vocab;    /* of tokens */
    bool with_asks; /* records keep what was asked */
    /* Whether the section of this identity is wanted: the lines of another are passed over. */
    bool (*wants)(void *arg, const char *identity);
    void (*take)(void *arg, const char *identity, ek_reply_record *r); /* one reference for it */
    void (*refuse)(void *arg, size_t number, const char *reason);      /* of a line, from 1, that is not taken */
    /* A line of a section that is not wanted, with its ask; borrowed. NULL: they are not read. */
    void (*other)(void *arg, const char *identity, const ek_reply_record *r);
    /* Whether a section's signature (base64) of the message is one of a key that is trusted; its lines are taken
     * together then, or none is. NULL: nobody asks. */
    bool (*trusts)(void *arg, const char *key, const char *signature, size_t n_signature, const void *message,
                   size_t n);
    void *arg;
} ek_cassette_read;

typedef struct ek_cassette_counts {
    size_t taken, others, refused; /* others: of sections that are not wanted */
} ek_cassette_counts;

/* Reads a file's bytes. What is wrong with a line, a section's end or a version costs that line or section alone.
 * EFORMAT: it does not begin as a cassette. */
ek_err ek_cassette_read_text(ek_cassette_counts *out, const char *text, size_t size, const ek_cassette_read *how);
/* The same of a file; ENOTFOUND, EIO with the path. */
ek_err ek_cassette_read_file(ek_cassette_counts *out, const char *path, const ek_cassette_read *how);

/* --- a file to answer from --- */

/* Where records of one cassette or several are found, by their content keys, whoever asks, and which request of them
 * is nearest to another one. Zeroed: *out. */
typedef struct ek_cassette ek_cassette;
typedef struct ek_cassette_opts {
    const char *const *path;
    int n;
    const char *identity; /* NULL: that of the first section that fits */
    int n_vocab;
    bool (*fits)(void *arg, const char *identity);
    bool (*trusts)(void *arg, const char *key, const char *signature, size_t n_signature, const void *message,
                   size_t n);
    void *arg;
} ek_cassette_opts;
/* A warning in the log for each of the first lines that are refused. EINVAL: no section is of the identity, with both;
 * errors of ek_cassette_read_file. Afterwards nothing of o is used. */
ek_err ek_cassette_open(ek_cassette **out, const ek_cassette_opts *o);
const char *ek_cassette_identity(const ek_cassette *c);
size_t ek_cassette_entries(const ek_cassette *c);
/* For ek_replies_add: the backend closes it. */
ek_reply_backend ek_cassette_backend(ek_cassette *c);
void ek_cassette_close(ek_cassette *c); /* NULL is allowed */

#endif
