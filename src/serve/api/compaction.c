#include "serve/api/compaction.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"

static const char ask[] =
    "Summarize this conversation, so that the work can go on from your summary alone. Say what the user wants and "
    "which constraints hold, what was decided and found out, the names of files, functions, commands and values that "
    "matter, what results of tools said, what is done, and the next step. Write only the summary.";
static const char before[] = "Summary of the conversation so far:\n\n";

ek_err ek_compaction_ask(ek_api_request *r, const char *instructions, size_t n)
{
    const char *text = instructions ? instructions : "";
    if (!instructions) n = 0;
    ek_utf8_strip(&text, &n);
    if (r->conversation.n_messages == 0) return ek_fail(EK_EINVAL, "there is no message to summarize");
    ek_message *m = ek_conversation_add(&r->conversation, EK_ROLE_USER);
    if (n > 0) ek_message_text(m, EK_BLOCK_TEXT, text, n);
    else ek_message_text(m, EK_BLOCK_TEXT, ask, sizeof ask - 1);
    r->prompt.add_generation_prompt = true;
    r->prompt.continue_final = false;
    r->turn.tools_active = r->turn.one_call = false;
    json_decref(r->schema);
    json_decref(r->only);
    r->schema = r->only = NULL;
    r->form = (ek_reply_form){0};
    return EK_OK;
}

bool ek_compaction_of(const ek_turn_result *t, const char **text, size_t *n)
{
    *text = ek_buf_text(&t->answer.content);
    *n = t->answer.content.len;
    ek_utf8_strip(text, n);
    return *n > 0 && (t->end == EK_END_STOP || t->end == EK_END_STOP_STRING);
}

static bool stays(const ek_message *m, bool keep_user)
{
    if (m->role == EK_ROLE_SYSTEM || m->role == EK_ROLE_DEVELOPER) return true;
    return keep_user && m->role == EK_ROLE_USER;
}

void ek_compaction_take(ek_conversation *c, const char *text, size_t n, bool keep_user)
{
    int n_kept = 0;
    ek_message *sorted = ek_alloc((size_t)c->n_messages * sizeof *sorted + 1);
    for (int keep = 1, at = 0; keep >= 0; keep--)
        for (int i = 0; i < c->n_messages; i++) {
            if (stays(&c->messages[i], keep_user) != (keep == 1)) continue;
            sorted[at++] = c->messages[i];
            n_kept += keep;
        }
    if (c->n_messages > 0) memcpy(c->messages, sorted, (size_t)c->n_messages * sizeof *sorted);
    free(sorted);
    ek_conversation_cut(c, n_kept);
    ek_buf summary = {0};
    ek_buf_str(&summary, before);
    ek_buf_add(&summary, text, n);
    ek_message_text(ek_conversation_add(c, EK_ROLE_USER), EK_BLOCK_TEXT, summary.data, summary.len);
    ek_buf_fini(&summary);
}
