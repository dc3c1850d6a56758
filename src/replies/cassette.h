/* A cassette: a file of stored replies as JSON lines, sorted by key and without times, so that equal stores give equal
 * files.
 *
 *   {"evenkeel_replies":1,"identity":"model …, ek3 …"}                      begins a section of one identity
 *   {"key":…,"ask":{…},"tokens":[…],"rows":…,"probs":null,"sum":…,"text":…}  a reply
 *   {"entries":2,"sum":…,"key":…,"signature":…}  ends it: SHA-256 over its sums; the last two if signed
 *
 * key is the content key (replies/ask.h); a reader computes it again. ask is the request as text there. rows have 8
 * bytes each, in base64. probs are null, or log-probabilities of the first tokens as in replies/record.h, in base64.
 * sum is the SHA-256 of the line before it, as ek_cassette_line spells it. text is for people. Sums find damage; a
 * forger can make sums, but no signature. Owners and salts are never written. */
#ifndef EK_REPLIES_CASSETTE_H
#define EK_REPLIES_CASSETTE_H

#include "base/buf.h"
#include "base/hash/hash.h"
#include "replies/replies.h"

enum { EK_CASSETTE_VERSION = 1, EK_CASSETTE_LINE = 64 << 20 }; /* maximum bytes of a line */

/* --- a line --- */

/* Appends the line of a record with its newline. text: for people, or NULL. *key: the content key; sum: the line's;
 * either may be NULL. EINVAL: the record has no ask; EFORMAT: the ask is invalid. */
ek_err ek_cassette_line(ek_buf *out, const ek_reply_record *r, const char *identity, const ek_buf *text,
                        ek_reply_key *key, char sum[65]);
/* Reads a line without its newline into a record under the content key, with its ask if with_ask. One reference.
 * EFORMAT with the reason: the line is no reply, is damaged, or does not fit its key; EPARSE: it is not JSON. */
ek_err ek_cassette_line_read(ek_reply_record **out, const char *line, size_t n, const char *identity, int n_vocab,
                             bool with_ask, char sum[65]);

/* Append the first and the last line of a section. */
void ek_cassette_head(ek_buf *out, const char *identity);
typedef struct ek_cassette_end {
    size_t entries;
    ek_sha256_state sums;
} ek_cassette_end;
void ek_cassette_end_init(ek_cassette_end *e);
void ek_cassette_end_add(ek_cassette_end *e, const char sum[65]);
/* A signer: sign appends the base64 of the message's signature; key is its public key. */
typedef struct ek_cassette_signer {
    ek_err (*sign)(void *arg, ek_buf *signature, const void *message, size_t n);
    void *arg;
    const char *key; /* hexadecimal */
} ek_cassette_signer;
/* signer: NULL for none. Returns sign's error; nothing is appended then. */
ek_err ek_cassette_end_line(ek_buf *out, const char *identity, ek_cassette_end *e, const ek_cassette_signer *signer);

/* --- a file --- */

typedef struct ek_cassette_read {
    int n_vocab;    /* tokens are below it */
    bool with_asks; /* records keep the requests */
    /* Whether the section of this identity is wanted; lines of other sections are skipped. */
    bool (*wants)(void *arg, const char *identity);
    void (*take)(void *arg, const char *identity, ek_reply_record *r); /* takes over one reference */
    void (*refuse)(void *arg, size_t number, const char *reason);      /* a refused line; numbers from 1 */
    /* A line of an unwanted section, with its ask; borrowed. NULL: such lines are not read. */
    void (*other)(void *arg, const char *identity, const ek_reply_record *r);
    /* Whether a section's signature (base64) of the message comes from a trusted key. If not, none of the section's
     * lines are taken. NULL: signatures are not checked. */
    bool (*trusts)(void *arg, const char *key, const char *signature, size_t n_signature, const void *message,
                   size_t n);
    void *arg;
} ek_cassette_read;

typedef struct ek_cassette_counts {
    size_t taken, others, refused; /* others: lines of unwanted sections */
} ek_cassette_counts;

/* Reads a file's bytes. A wrong line, section end or version costs that line or section alone. EFORMAT: the text does
 * not begin as a cassette. */
ek_err ek_cassette_read_text(ek_cassette_counts *out, const char *text, size_t size, const ek_cassette_read *how);
/* Reads a file. ENOTFOUND, EIO with the path. */
ek_err ek_cassette_read_file(ek_cassette_counts *out, const char *path, const ek_cassette_read *how);

/* --- a file to answer from --- */

/* Records of one or several cassettes, found by content key for every owner. It also finds the stored request nearest
 * to another one. */
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
/* Logs a warning for each of the first refused lines. EINVAL: no section has the identity; the sentence names both.
 * Also errors of ek_cassette_read_file. o is not used afterwards. */
ek_err ek_cassette_open(ek_cassette **out, const ek_cassette_opts *o);
const char *ek_cassette_identity(const ek_cassette *c);
size_t ek_cassette_entries(const ek_cassette *c);
/* For ek_replies_add; the backend closes c. */
ek_reply_backend ek_cassette_backend(ek_cassette *c);
void ek_cassette_close(ek_cassette *c); /* NULL is allowed */

#endif
