/* `verify`: compares a receipt with model, prompt and reply. Inside src/cli. */
#ifndef EK_CLI_RECEIPTS_VERIFY_H
#define EK_CLI_RECEIPTS_VERIFY_H

#include "chat/loops.h"
#include "cli/frame/cli.h"
#include "cli/frame/open.h"
#include "receipts/receipt.h"

typedef enum ek_verified {
    EK_VERIFIED_OK,
    EK_VERIFIED_WRONG,    /* another answer, or a changed receipt: exit status 1 */
    EK_VERIFIED_CANNOT,   /* a requested check is impossible here: exit status 2 */
    EK_VERIFIED_UNCHECKED /* not requested, and nothing to compare with */
} ek_verified;

typedef struct ek_check {
    const char *name; /* a word; static */
    ek_verified how;
    char *text;
} ek_check;

/* The results for one receipt, in order. */
typedef struct ek_report {
    ek_check *check;
    int n;
} ek_report;

__attribute__((format(printf, 4, 5))) void ek_report_add(ek_report *r, ek_verified how, const char *name,
                                                         const char *fmt, ...);

/* --- with a model --- */

/* Opens the model for this receipt. Formats that cli leaves at their defaults are those of the receipt's arithmetic. */
ek_err ek_verify_open(ek_opened *m, const ek_cli *cli, const ek_receipt *r);

/* Compares model, tokenizer and arithmetic. False: rows cannot be compared. */
bool ek_verify_model(ek_report *out, const ek_receipt *r, ek_opened *m);

/* The client's request. */
typedef struct ek_asked {
    ek_turn_prompt prompt;
    ek_past_calls past; /* calls of the conversation */
    bool knows_past;    /* the conversation was read from a body, so past is complete */
} ek_asked;

/* Reads the client's own prompt, n bytes: a request body of any API, a list of token ids, or a prompt's text. *found
 * gets the prompt with the receipt's commitment, for ek_asked_fini; false: there is none. chat NULL: without a model.
 */
bool ek_verify_prompt(ek_report *out, const ek_receipt *r, const ek_chat_model *chat, const ek_config *config,
                      const char *text, size_t n, ek_asked *found);
void ek_asked_fini(ek_asked *a);

/* Checks text, end and seed by the opening's tokens. reply: a body with n receipts; this one belongs to choice i. The
 * end of a reply that repeats a call is unchecked if earlier calls are unknown. */
void ek_verify_reply(ek_report *out, const ek_receipt *r, const ek_opened *m, const ek_asked *asked,
                     const json_t *reply, int i, int n);

/* Computes rows [from, to) of the reply in one pass of chunks, and compares the root, mask and draw of each. */
void ek_verify_rows(ek_report *out, const ek_receipt *r, const ek_opened *m, const ek_turn_prompt *prompt, int from,
                    int to);

#endif
