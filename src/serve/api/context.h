/* What APIs call context management: a conversation that has grown too long is read without old results of tools or old
 * thoughts, or the model writes a summary of it first, which then stands for it. Inside src/serve. */
#ifndef EK_SERVE_CONTEXT_H
#define EK_SERVE_CONTEXT_H

#include "serve/api/dialect.h"

typedef enum ek_edit_kind { EK_EDIT_TOOL_USES, EK_EDIT_THINKING } ek_edit_kind;

typedef struct ek_edit {
    ek_edit_kind kind;
    int64_t more_tokens, more_uses; /* it is made of prompts with more than that; -1: that decides nothing */
    int64_t keep;                   /* of the latest uses, or of the latest turns with thoughts */
    int64_t at_least;               /* tokens that it has to save; otherwise nothing is changed */
    bool inputs;                    /* of calls, too; */
    const json_t *inputs_of;        /* of these tools only, unless NULL; a new reference, as the next */
    const json_t *excluded;         /* names of tools that nothing is removed of; NULL: none */
    int n_cleared;                  /* what it did */
    int64_t n_tokens;
} ek_edit;

enum { EK_EDITS_MAX = 8, EK_EDIT_NAMES_MAX = 1024 }; /* of a request; of each list of one */

/* ek_api_request.context. */
typedef struct ek_context {
    ek_edit edit[EK_EDITS_MAX];
    int n_edits;
    int compact_at; /* tokens of a prompt beyond which it is summarized; 0: never */
    bool alone;     /* the reply is then that summary; otherwise it follows in a second reading of the body */
    bool compacts;  /* it is so; set by ek_context_settle */
    ek_buf ask;     /* for the summary, in place of our own words; empty: our own */
    int original;   /* tokens of the prompt before the edits */
} ek_context;

/* The context of r, which is made where it has none. */
ek_context *ek_context_of(ek_api_request *r);
void ek_context_free(ek_context *c); /* NULL is fine */
/* 80 in 100 of what the context holds: where nothing says when something is to be done. */
int ek_context_threshold(int ctx_tokens);

/* The prompt of r is made, or err says that it is too long: edits its conversation as its context says, and makes it
 * anew; or makes the request one for a summary. */
ek_err ek_context_settle(ek_api_request *r, ek_turn_prompt *prompt, const ek_chat_model *m, ek_err err);

/* The summary of a first reading, at the end of r's conversation; keep_user: as in ek_compaction_take. A copy, to be
 * freed with ek_api_summary_free, which takes NULL. */
ek_api_summary *ek_context_take(ek_api_request *r, const ek_api_summary *summary, bool keep_user);

void ek_api_summary_free(ek_api_summary *s);

#endif
