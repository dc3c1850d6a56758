/* Context management, as APIs call it. A conversation that has grown too long is read without old tool results or
 * thoughts, or the model first writes a summary, which replaces it. Inside src/serve. */
#ifndef EK_SERVE_CONTEXT_H
#define EK_SERVE_CONTEXT_H

#include "serve/api/dialect.h"

typedef enum ek_edit_kind { EK_EDIT_TOOL_USES, EK_EDIT_THINKING } ek_edit_kind;

typedef struct ek_edit {
    ek_edit_kind kind;
    int64_t more_tokens, more_uses; /* applies to prompts with more tokens or uses; -1: no condition */
    int64_t keep;                   /* number of latest uses, or latest turns with thoughts, to keep */
    int64_t at_least;               /* minimum saving in tokens; otherwise nothing is changed */
    bool inputs;                    /* also clears inputs of calls */
    const json_t *inputs_of;        /* only uses of these tools; NULL: of all tools. A reference, like the next */
    const json_t *excluded;         /* names of tools to leave alone; NULL: none */
    int n_cleared;                  /* result: cleared items */
    int64_t n_tokens;               /* result: saved tokens */
} ek_edit;

enum { EK_EDITS_MAX = 8, EK_EDIT_NAMES_MAX = 1024 }; /* maximum edits of a request, and names in each list of an edit */

/* ek_api_request.context. */
typedef struct ek_context {
    ek_edit edit[EK_EDITS_MAX];
    int n_edits;
    int compact_at; /* prompts with more tokens are summarized; 0: never */
    bool alone;     /* the reply is the summary alone; otherwise the body is read again for the reply */
    bool compacts;  /* this request is summarized; set by ek_context_settle */
    ek_buf ask;     /* instructions for the summary that replace ours; empty: ours */
    int original;   /* prompt tokens before the edits */
} ek_context;

/* The context of r, made if there is none. */
ek_context *ek_context_of(ek_api_request *r);
void ek_context_free(ek_context *c); /* NULL is allowed */
/* The default trigger, 80 % of the context. */
int ek_context_threshold(int ctx_tokens);

/* Called after r's prompt was made or was too long (err): applies the edits of r's context and makes the prompt again,
 * or turns r into a request for a summary. */
ek_err ek_context_settle(ek_api_request *r, ek_turn_prompt *prompt, const ek_chat_model *m, ek_err err);

/* Takes the summary of the first reading to the end of r's conversation; keep_user as in ek_compaction_take. Returns a
 * copy for ek_api_summary_free, which allows NULL. */
ek_api_summary *ek_context_take(ek_api_request *r, const ek_api_summary *summary, bool keep_user);

void ek_api_summary_free(ek_api_summary *s);

/* --- compaction: the model writes a summary of a conversation, and later requests hold the summary in its place ---
 *
 * The request for a summary is the conversation with one more message, so everything before it comes from the cache. */

/* Turns r, which was read completely, into a request for a summary of its conversation. instructions: n bytes that
 * replace our own wording; NULL or blank: ours. Tools stay in the prompt but cannot be called; a required form of the
 * reply is dropped. EINVAL without a message. */
ek_err ek_compaction_ask(ek_api_request *r, const char *instructions, size_t n);
/* The summary in an ended reply: its text. False if a limit cut the reply or it has no text. */
bool ek_compaction_of(const ek_turn_result *t, const char **text, size_t *n);
/* Takes a summary into c at its end. It replaces the messages of assistant, tools
 * and user; with keep_user the user's stay. */
void ek_compaction_take(ek_conversation *c, const char *text, size_t n, bool keep_user);

#endif
