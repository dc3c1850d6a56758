#include "serve/api/context.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"

static const char cleared[] = "[This result was removed to save context.]";

ek_context *ek_context_of(ek_api_request *r)
{
    if (!r->context) r->context = ek_alloc(sizeof *r->context);
    return r->context;
}

void ek_context_free(ek_context *c)
{
    if (!c) return;
    for (int i = 0; i < c->n_edits; i++) {
        json_decref((json_t *)(uintptr_t)c->edit[i].inputs_of);
        json_decref((json_t *)(uintptr_t)c->edit[i].excluded);
    }
    ek_buf_fini(&c->ask);
    free(c);
}

int ek_context_threshold(int ctx_tokens)
{
    return (int)((int64_t)ctx_tokens * 8 / 10);
}

/* --- compaction --- */

static const char ask[] =
    "Summarize this conversation, so that the work can go on from your summary alone. Say what the user wants and "
    "which constraints hold, what was decided and found out, the names of files, functions, commands and values that "
    "matter, what results of tools said, what is done, and the next step. Write only the summary.";
static const char heading[] = "Summary of the conversation so far:\n\n";

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
    ek_buf_str(&summary, heading);
    ek_buf_add(&summary, text, n);
    ek_message_text(ek_conversation_add(c, EK_ROLE_USER), EK_BLOCK_TEXT, summary.data, summary.len);
    ek_buf_fini(&summary);
}

/* --- edits that can be undone --- */

typedef struct change {
    int message;
    int block;      /* the block whose value was changed; -1: the message was replaced */
    ek_message was; /* of the message */
    json_t *value;  /* of the block */
} change;

typedef struct changes {
    ek_conversation *of;
    change *at;
    int n, cap, n_cleared;
} changes;

static change *add(changes *c)
{
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 16;
        c->at = ek_realloc(c->at, (size_t)c->cap * sizeof *c->at);
    }
    c->at[c->n] = (change){0};
    return &c->at[c->n++];
}

static void take_back(changes *c)
{
    for (int i = c->n - 1; i >= 0; i--) {
        change *was = &c->at[i];
        if (was->block < 0) {
            ek_conversation_exchange(c->of, was->message, &was->was);
            continue;
        }
        ek_block *b = &c->of->messages[was->message].blocks[was->block];
        json_t *now = b->value;
        b->value = was->value;
        was->value = now;
    }
}

static void free_changes(changes *c)
{
    for (int i = 0; i < c->n; i++) {
        ek_message_fini(&c->at[i].was);
        json_decref(c->at[i].value);
    }
    free(c->at);
}

static bool is_named(const json_t *names, const char *name)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *s = json_string_value(json_array_get(names, i));
        if (s && !strcmp(s, name)) return true;
    }
    return false;
}

/* The message and block of each call by its id; of calls with one id the last. */
static json_t *calls_of(const ek_conversation *c)
{
    json_t *calls = json_object();
    for (int i = 0; i < c->n_messages; i++)
        for (int k = 0; k < c->messages[i].n_blocks; k++) {
            const ek_block *b = &c->messages[i].blocks[k];
            if (b->kind != EK_BLOCK_CALL || b->id.len == 0) continue;
            json_t *place = json_array();
            json_array_append_new(place, json_integer(i));
            json_array_append_new(place, json_integer(k));
            json_object_setn_new_nocheck(calls, b->id.data, b->id.len, place);
        }
    return calls;
}

static bool is_cleared(const ek_message *m)
{
    return m->n_blocks == 1 && m->blocks[0].kind == EK_BLOCK_TEXT && m->blocks[0].text.len == sizeof cleared - 1 &&
           !memcmp(m->blocks[0].text.data, cleared, sizeof cleared - 1);
}

static void clear_result(changes *c, int message)
{
    const ek_message *m = &c->of->messages[message];
    change *was = add(c);
    ek_message to = {.role = m->role};
    ek_buf_add(&to.call_id, ek_buf_text(&m->call_id), m->call_id.len);
    ek_buf_add(&to.name, ek_buf_text(&m->name), m->name.len);
    ek_message_text(&to, EK_BLOCK_TEXT, cleared, sizeof cleared - 1);
    *was = (change){.message = message, .block = -1, .was = to};
    ek_conversation_exchange(c->of, message, &was->was);
}

static void clear_input(changes *c, int message, int block)
{
    ek_block *b = &c->of->messages[message].blocks[block];
    *add(c) = (change){.message = message, .block = block, .value = b->value};
    b->value = json_object();
}

/* Clears all uses that have results, except the latest ones. */
static void clear_uses(changes *c, const ek_edit *e, int n_uses)
{
    json_t *calls = calls_of(c->of);
    int64_t left = n_uses - e->keep;
    for (int i = 0; i < c->of->n_messages && left > 0; i++) {
        const ek_message *m = &c->of->messages[i];
        if (m->role != EK_ROLE_TOOL) continue;
        left--;
        const json_t *place = json_object_getn(calls, ek_buf_text(&m->call_id), m->call_id.len);
        const int at = place ? (int)json_integer_value(json_array_get(place, 0)) : -1,
                  block = place ? (int)json_integer_value(json_array_get(place, 1)) : -1;
        const char *name = at >= 0 ? ek_buf_text(&c->of->messages[at].blocks[block].name) : "";
        if (is_cleared(m) || is_named(e->excluded, name)) continue;
        clear_result(c, i);
        if (at >= 0 && (e->inputs_of ? is_named(e->inputs_of, name) : e->inputs)) clear_input(c, at, block);
        c->n_cleared++;
    }
    json_decref(calls);
}

static bool has_thoughts(const ek_message *m)
{
    for (int k = 0; k < m->n_blocks; k++)
        if (m->blocks[k].kind == EK_BLOCK_REASONING) return true;
    return false;
}

/* Clears the thoughts of a message: the blocks stay, with an empty text. */
static void clear_thoughts(changes *c, int message)
{
    ek_message *m = &c->of->messages[message];
    ek_message to = {.role = m->role, .parts = m->parts};
    for (int k = 0; k < m->n_blocks; k++) {
        if (m->blocks[k].kind == EK_BLOCK_REASONING) continue;
        ek_block *b = ek_message_add(&to, m->blocks[k].kind);
        if (b->kind == EK_BLOCK_CALL) {
            ek_buf_add(&b->id, ek_buf_text(&m->blocks[k].id), m->blocks[k].id.len);
            ek_buf_add(&b->name, ek_buf_text(&m->blocks[k].name), m->blocks[k].name.len);
            b->value = json_incref(m->blocks[k].value);
            b->cut = m->blocks[k].cut;
        } else {
            ek_buf_add(&b->text, ek_buf_text(&m->blocks[k].text), m->blocks[k].text.len);
        }
    }
    change *was = add(c);
    *was = (change){.message = message, .block = -1, .was = to};
    ek_conversation_exchange(c->of, message, &was->was);
    c->n_cleared++;
}

static bool is_plain(const ek_message *m)
{
    for (int k = 0; k < m->n_blocks; k++)
        if (m->blocks[k].kind != EK_BLOCK_TEXT && m->blocks[k].kind != EK_BLOCK_REASONING &&
            m->blocks[k].kind != EK_BLOCK_CALL)
            return false;
    return true;
}

static void clear_thinking(changes *c, const ek_edit *e)
{
    int64_t kept = 0;
    for (int i = c->of->n_messages - 1; i >= 0; i--) {
        const ek_message *m = &c->of->messages[i];
        if (m->role != EK_ROLE_ASSISTANT || !has_thoughts(m) || !is_plain(m)) continue;
        if (kept++ >= e->keep) clear_thoughts(c, i);
    }
}

static int count_uses(const ek_conversation *c)
{
    int n = 0;
    for (int i = 0; i < c->n_messages; i++) n += c->messages[i].role == EK_ROLE_TOOL;
    return n;
}

static bool is_due(const ek_edit *e, int64_t n_tokens, int n_uses)
{
    if (e->kind == EK_EDIT_THINKING) return true;
    return (e->more_tokens >= 0 && n_tokens > e->more_tokens) || (e->more_uses >= 0 && n_uses > e->more_uses);
}

/* --- prompts --- */

static ek_err make(ek_turn_prompt *out, const ek_chat_model *m, const ek_api_request *r)
{
    *out = (ek_turn_prompt){0};
    return ek_turn_prompt_make(out, m, &r->conversation, r->declared ? r->declared : r->tools, &r->prompt);
}

/* *err: the error of the unchanged prompt; a prompt that is too long counts as long as the context. */
static ek_err edit(ek_api_request *r, ek_edit *e, ek_turn_prompt *prompt, const ek_chat_model *m, ek_err err)
{
    const int64_t before = err ? r->prompt.ctx_tokens : (int64_t)prompt->ids.len;
    const int n_uses = count_uses(&r->conversation);
    changes c = {.of = &r->conversation};
    if (!is_due(e, before, n_uses)) return err;
    if (e->kind == EK_EDIT_TOOL_USES) clear_uses(&c, e, n_uses);
    else clear_thinking(&c, e);
    if (c.n == 0) return err;
    ek_turn_prompt shorter;
    const ek_err now = make(&shorter, m, r);
    const int64_t saved = now ? 0 : before - (int64_t)shorter.ids.len;
    if ((now && now != EK_ETOOLONG) || saved < e->at_least) {
        take_back(&c);
        ek_turn_prompt_fini(&shorter);
        if (now == EK_ETOOLONG) err = now; /* its sentence is the latest one */
    } else {
        e->n_cleared = c.n_cleared;
        e->n_tokens = saved > 0 ? saved : 0;
        ek_turn_prompt_fini(prompt);
        *prompt = shorter;
        err = now;
    }
    free_changes(&c);
    return err;
}

/* Makes the prompt of a summary: without a form, calls, stop strings or a beginning. It begins like the conversation's
 * prompt. */
static ek_err summarize(ek_api_request *r, ek_turn_prompt *prompt, const ek_chat_model *m)
{
    ek_context *c = r->context;
    EK_TRY(ek_compaction_ask(r, c->ask.len ? c->ask.data : NULL, c->ask.len));
    ek_grammar_close(r->grammar);
    r->grammar = NULL;
    r->turn.grammar = NULL;
    ek_buf_fini(&r->form_text);
    r->turn.form = NULL;
    r->turn.max_tokens = INT_MAX;
    r->turn.n_stop = 0; /* a stop string would cut the summary, which stands for the whole conversation */
    c->compacts = true;
    ek_turn_prompt_fini(prompt);
    return make(prompt, m, r);
}

ek_err ek_context_settle(ek_api_request *r, ek_turn_prompt *prompt, const ek_chat_model *m, ek_err err)
{
    ek_context *c = r->context;
    if (!c || (err && err != EK_ETOOLONG)) return err;
    c->original = err ? r->prompt.ctx_tokens : (int)prompt->ids.len;
    for (int i = 0; i < c->n_edits; i++) err = edit(r, &c->edit[i], prompt, m, err);
    if (err || c->compact_at <= 0 || (int64_t)prompt->ids.len <= c->compact_at) return err;
    return summarize(r, prompt, m);
}

ek_api_summary *ek_context_take(ek_api_request *r, const ek_api_summary *summary, bool keep_user)
{
    ek_api_summary *copy = ek_alloc(sizeof *copy);
    *copy = *summary;
    copy->text = (ek_buf){0};
    ek_buf_add(&copy->text, ek_buf_text(&summary->text), summary->text.len);
    if (summary->text.len == 0) return copy; /* a limit cut it, so it replaces nothing */
    ek_compaction_take(&r->conversation, copy->text.data, copy->text.len, keep_user);
    r->prompt.add_generation_prompt = true;
    r->prompt.continue_final = false;
    return copy;
}

void ek_api_summary_free(ek_api_summary *s)
{
    if (s) ek_buf_fini(&s->text);
    free(s);
}
