/* A receipt: a DSSE envelope around a statement, and beside it the unsigned opening of the commitments.
 *
 *   {"payloadType": "application/vnd.in-toto+json", "payload": base64, "signatures": [{"keyid", "sig": base64}],
 *    "opening": {"salt", "prompt": [tokens], "reply": [tokens], "stop": [texts], "form": text, "parts": [[first, kind,
 *                digest]...], "row_roots": base64 of 32 bytes a row},
 *    "log": {...}}                                                            receipts/log.h
 *
 * A signature covers "DSSEv1 LENGTH TYPE LENGTH PAYLOAD". An opening is not trusted: each member has to give its
 * commitment. */
#ifndef EK_RECEIPTS_RECEIPT_H
#define EK_RECEIPTS_RECEIPT_H

#include "receipts/statement.h"
#include "text/json/json.h"

enum { EK_RECEIPT_SIGNATURES = 8, EK_RECEIPT_STOPS = 64 };
#define EK_RECEIPT_BYTES ((size_t)256 << 20) /* maximum file */
#define EK_RECEIPT_TYPE  "application/vnd.in-toto+json"

/* The contents and salts of the commitments. Borrowed when a receipt is made, owned when one was read. */
typedef struct ek_opening {
    ek_hash secret;
    int32_t *prompt, *reply; /* NULL: not given */
    size_t n_prompt, n_reply;
    char **stop;
    size_t *stop_len;
    size_t n_stop;
    char *form; /* the grammar's source; NULL: none */
    size_t n_form;
    ek_commit_part *part;
    size_t n_parts;
    ek_hash *row; /* root of each of the n_reply rows; NULL: not given */
} ek_opening;

typedef struct ek_receipt {
    ek_buf payload;
    struct {
        char keyid[EK_KEY_ID];
        uint8_t sig[EK_SIGNATURE];
    } signature[EK_RECEIPT_SIGNATURES];
    int n_signatures;
    ek_statement statement; /* hidden lengths are filled in from the opening, if there is one */
    bool has_opening;
    ek_opening opening;
    json_t *log; /* the envelope's member; owned; NULL: none */
} ek_receipt;

/* Fills in s: the commitments and lengths of o's contents, the key, and the rows' root. text: the text of the reply's
 * tokens. Linear in the tokens. */
void ek_receipt_commit(ek_statement *s, const ek_opening *o, const ek_public_key *key, const char *text, size_t n_text);
struct ek_receipt_log;
/* Appends the envelope of s with its opening (NULL: without), and no newline. With a log (NULL: none) the receipt's
 * entry is written there first. EINTERNAL if signing fails, EIO if the log has no room. */
ek_err ek_receipt_write(ek_buf *out, const ek_statement *s, const ek_opening *o, const ek_signing_key *key,
                        struct ek_receipt_log *log);
/* The entry of r in a log: the SHA-256 of its envelope with the first signature, in the form above. */
void ek_receipt_entry(ek_hash *out, const ek_receipt *r);
/* Appends the envelope of a payload without its closing brace. EINTERNAL. */
ek_err ek_receipt_seal(ek_buf *out, const void *payload, size_t n, const ek_signing_key *key);

/* Reads a JSON text with receipts: an envelope, a list of envelopes, or a server's reply or record with receipts at
 * evenkeel.receipt, receipt or response.evenkeel.receipt. *out: for json_decref, NULL after a failure; *n_receipts:
 * their number. EFORMAT with the reason, ENOTFOUND if there is none. Sizes are checked before memory is allocated. */
ek_err ek_receipts_parse(json_t **out, int *n_receipts, const char *text, size_t n);
/* Reads receipt i. EFORMAT with the reason, ENOTFOUND if there is none. out need not be initialised;
 * ek_receipt_fini also after a failure. */
ek_err ek_receipt_of_file(ek_receipt *out, const json_t *file, int i);
/* Both functions in one, for receipt i of a text. n_receipts may be NULL. */
ek_err ek_receipt_read(ek_receipt *out, const char *text, size_t n, int i, int *n_receipts);
void ek_receipt_fini(ek_receipt *r);

typedef enum ek_signed {
    EK_SIGNED_GOOD,
    EK_SIGNED_WRONG, /* it names this key, but the signature does not fit: the receipt was changed */
    EK_SIGNED_OTHER  /* by another key */
} ek_signed;
/* Compares r's signatures with a key, even if the statement is unreadable. EUNSUPPORTED without libcrypto. */
ek_err ek_receipt_signed(ek_signed *out, const ek_receipt *r, const ek_public_key *key);

/* The label of the first commitment that r's opening does not give, for people; NULL: all agree. Rows without an
 * opening are not checked. */
const char *ek_receipt_opens(const ek_receipt *r);
/* The root over a reply's rows; salt: that of EK_LABEL_ROWS. */
ek_hash ek_receipt_rows(const ek_hash *salt, const int32_t *reply, const ek_hash *row, size_t n);

/* Appends the statement for people, one line per member. */
void ek_receipt_show(ek_buf *out, const ek_receipt *r);

#endif
