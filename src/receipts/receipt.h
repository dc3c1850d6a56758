/* A receipt: a DSSE envelope around a statement, and beside it, unsigned, what opens the commitments.
 *
 *   {"payloadType": "application/vnd.in-toto+json", "payload": base64, "signatures": [{"keyid", "sig": base64}],
 *    "opening": {"salt", "prompt": [tokens], "reply": [tokens], "stop": [texts], "form": text, "parts": [[first, kind,
 *                digest]...], "row_roots": base64 of 32 bytes a row},
 *    "log": {...}}                                                            receipts/log.h
 *
 * A signature is over "DSSEv1 LENGTH TYPE LENGTH PAYLOAD". Nothing of an opening is believed: each member has to give
 * its commitment. */
#ifndef EK_RECEIPTS_RECEIPT_H
#define EK_RECEIPTS_RECEIPT_H

#include "receipts/statement.h"
#include "text/json/json.h"

enum { EK_RECEIPT_SIGNATURES = 8, EK_RECEIPT_STOPS = 64 };
#define EK_RECEIPT_BYTES ((size_t)256 << 20) /* maximum file */
#define EK_RECEIPT_TYPE  "application/vnd.in-toto+json"

/* What opens the commitments. Borrowed where a receipt is made, owned where one was read. */
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
    ek_statement statement; /* lengths that it hides are those of the opening, where there is one */
    bool has_opening;
    ek_opening opening;
    json_t *log; /* what the envelope has; owned; NULL: nothing */
} ek_receipt;

/* Fills in s's commitments and lengths of what o opens, its key, and the rows' root; text: what the reply's tokens
 * spell. Linear in the tokens. */
void ek_receipt_commit(ek_statement *s, const ek_opening *o, const ek_public_key *key, const char *text, size_t n_text);
struct ek_receipt_log;
/* Appends the envelope of s with its opening (NULL: without), and no newline. With a log (NULL: none) its entry is
 * written first. EINTERNAL if it cannot be signed, EIO if the log has no room. */
ek_err ek_receipt_write(ek_buf *out, const ek_statement *s, const ek_opening *o, const ek_signing_key *key,
                        struct ek_receipt_log *log);
/* What a log has of r: the SHA-256 of its envelope with the first signature, in the form above, as it is written. */
void ek_receipt_entry(ek_hash *out, const ek_receipt *r);
/* Appends such an envelope of a payload: without the brace that closes it. EINTERNAL. */
ek_err ek_receipt_seal(ek_buf *out, const void *payload, size_t n, const ek_signing_key *key);

/* Reads a JSON text that has receipts: an envelope, a list of them, or a reply or a record of the server that has some
 * at evenkeel.receipt, receipt or response.evenkeel.receipt. *out: for json_decref, NULL after a failure; *n_receipts:
 * how many there are. EFORMAT with the reason, ENOTFOUND if there is none. Sizes are checked before memory is taken. */
ek_err ek_receipts_parse(json_t **out, int *n_receipts, const char *text, size_t n);
/* Reads receipt i of them. EFORMAT with the reason, ENOTFOUND if there is none. out need not be initialised;
 * ek_receipt_fini also after a failure. */
ek_err ek_receipt_of_file(ek_receipt *out, const json_t *file, int i);
/* Both, for one receipt of a text. n_receipts may be NULL. */
ek_err ek_receipt_read(ek_receipt *out, const char *text, size_t n, int i, int *n_receipts);
void ek_receipt_fini(ek_receipt *r);

/* Appends "DSSEv1 ..." of a payload: the message that is signed. */
void ek_receipt_message(ek_buf *out, const void *payload, size_t n);

typedef enum ek_signed {
    EK_SIGNED_GOOD,
    EK_SIGNED_WRONG, /* by this key, as it says, but the signature is of something else: it was changed */
    EK_SIGNED_OTHER  /* by another key */
} ek_signed;
/* Which of these r is for the key; also where its statement could not be read. EUNSUPPORTED without libcrypto. */
ek_err ek_receipt_signed(ek_signed *out, const ek_receipt *r, const ek_public_key *key);

/* The first commitment that r's opening does not give: its label, for people; NULL: all agree. Of rows that are not
 * given nothing is said. */
const char *ek_receipt_opens(const ek_receipt *r);
/* The root over rows of a reply; salt: of the label rows. */
ek_hash ek_receipt_rows(const ek_hash *salt, const int32_t *reply, const ek_hash *row, size_t n);

/* Appends the statement for people, a line per member. */
void ek_receipt_show(ek_buf *out, const ek_receipt *r);

#endif
