/* verify: a receipt against what it is said to be of. Inside src/cli. */
#ifndef EK_CLI_RECEIPTS_VERIFY_H
#define EK_CLI_RECEIPTS_VERIFY_H

#include "chat/loops.h"
#include "cli/frame/cli.h"
#include "cli/frame/open.h"
#include "receipts/receipt.h"

typedef enum ek_verified {
    EK_VERIFIED_OK,
    EK_VERIFIED_WRONG,    /* it is another answer, or was changed: exit status 1 */
    EK_VERIFIED_CANNOT,   /* what was asked cannot be checked here: 2 */
    EK_VERIFIED_UNCHECKED /* nothing was said that could be compared, and nobody asked */
} ek_verified;

typedef struct ek_check {
    const char *name; /* a word; static */
    ek_verified how;
    char *text;
} ek_check;

/* What was found about one receipt; in order. */
typedef struct ek_report {
    ek_check *check;
    int n;
} ek_report;

__attribute__((format(printf, 4, 5))) void ek_report_add(ek_report *r, ek_verified how, const char *name,
                                                         const char *fmt, ...);
/* The exit status. */
int ek_report_status(const ek_report *r);
void ek_report_fini(ek_report *r);

/* --- with a model --- */

/* Opens the model for this receipt: with the formats that its arithmetic names, where cli has the defaults. */
ek_err ek_verify_open(ek_opened *m, const ek_cli *cli, const ek_receipt *r);

/* Model, tokenizer and arithmetic. False: rows cannot be compared. */
bool ek_verify_model(ek_report *out, const ek_receipt *r, ek_opened *m);

/* What the client asked. */
typedef struct ek_asked {
    ek_turn_prompt prompt;
    ek_past_calls past; /* calls of the conversation, */
    bool knows_past;    /* where it was read from a body */
} ek_asked;

/* The client's own prompt, n bytes: a request body of any API, a list of token ids, or the text of one. *found gets
 * the prompt that has the receipt's commitment, for ek_asked_fini; false: none. chat NULL: without a model. */
bool ek_verify_prompt(ek_report *out, const ek_receipt *r, const ek_chat_model *chat, const ek_config *config,
                      const char *text, size_t n, ek_asked *found);
void ek_asked_fini(ek_asked *a);

/* Text, end and seed, from the opening's tokens. reply: the body that has n receipts; this one is of its choice i. A
 * reply that made a call once more has its end unchecked where the calls before it are not known. */
void ek_verify_reply(ek_report *out, const ek_receipt *r, const ek_opened *m, const ek_asked *asked,
                     const json_t *reply, int i, int n);

/* Computes rows [from, to) of the reply in one pass of chunks: each has its root, its mask and its draw compared.
 * parts: of the prompt, or none. */
void ek_verify_rows(ek_report *out, const ek_receipt *r, const ek_opened *m, const ek_turn_prompt *prompt, int from,
                    int to);

#endif
