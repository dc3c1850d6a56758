#include "chat/bounds.h"

#include <string.h>

#include "text/json/json.h"

void ek_bounds_init(ek_bounds *b, const ek_chat_model *m, const ek_grammar *grammar, int max_thinking,
                    const int32_t *prompt, size_t n, bool thinking)
{
    *b = (ek_bounds){0};
    ek_thought_start(&b->thought, &m->marks, max_thinking, prompt, n);
    if (grammar) b->grammar = ek_grammar_state_open(grammar, m->vocab, prompt, n, thinking);
}

void ek_bounds_fini(ek_bounds *b)
{
    ek_grammar_state_close(b->grammar);
    b->grammar = NULL;
}

bool ek_bounds_any(const ek_bounds *b)
{
    return b->grammar || b->thought.max > 0;
}

static int look(void *arg, const int32_t *draft, int n_draft, uint64_t *row, bool *all)
{
    const ek_bounds *b = arg;
    int n_words = ek_mask_words(b->n_vocab);
    if (b->grammar) n_draft = ek_grammar_look(b->grammar, draft, n_draft, n_words, row, all);
    else memset(all, true, sizeof *all * ((size_t)n_draft + 1));
    return ek_thought_look(&b->thought, draft, n_draft, n_words, b->n_vocab, row, all);
}

static int peek(void *arg, const int32_t *draft, int n_draft, bool *all)
{
    const ek_bounds *b = arg;
    if (b->grammar) n_draft = ek_grammar_peek(b->grammar, draft, n_draft, all);
    else memset(all, true, sizeof *all * ((size_t)n_draft + 1));
    return ek_thought_peek(&b->thought, draft, n_draft, all);
}

static void accept(void *arg, int32_t token)
{
    ek_bounds *b = arg;
    if (b->grammar) ek_grammar_accept(b->grammar, token);
    ek_thought_accept(&b->thought, token);
}

ek_mask ek_bounds_mask(ek_bounds *b)
{
    return (ek_mask){.arg = b, .look = look, .accept = accept, .peek = peek};
}

void ek_thought_start(ek_thought *t, const ek_marks *marks, int max, const int32_t *prompt, size_t n)
{
    const int32_t *id = marks->id;
    *t = (ek_thought){.open = id[EK_MARK_CHANNEL_OPEN], .close = id[EK_MARK_CHANNEL_CLOSE], .max = max};
    if (t->open < 0 || t->close < 0) t->max = 0;
    for (size_t i = n; t->max > 0 && i > 0; i--) { /* the prompt may have opened the thought's channel */
        if (prompt[i - 1] == t->close || prompt[i - 1] == id[EK_MARK_TURN_OPEN]) return;
        t->inside = prompt[i - 1] == t->open;
        if (t->inside) return;
    }
}

void ek_thought_accept(ek_thought *t, int32_t token)
{
    if (token == t->open) t->inside = true;
    if (token == t->close) t->inside = false;
    t->n += t->inside && t->n < t->max;
}

static bool is_set(const uint64_t *row, int32_t id)
{
    return row[id / 64] >> id % 64 & 1;
}

static void allow_every(uint64_t *row, int n_words, int n_vocab)
{
    memset(row, 0xff, sizeof *row * (size_t)n_words);
    if (n_vocab % 64) row[n_words - 1] = ((uint64_t)1 << n_vocab % 64) - 1;
}

static void narrow(const ek_thought *t, int n_words, int n_vocab, uint64_t *row, bool *all)
{
    if (t->n < t->max || (t->inside && !*all && !is_set(row, t->close))) return;
    if (t->inside) {
        memset(row, 0, sizeof *row * (size_t)n_words);
        row[t->close / 64] = (uint64_t)1 << t->close % 64;
    } else {
        if (*all) allow_every(row, n_words, n_vocab);
        row[t->open / 64] &= ~((uint64_t)1 << t->open % 64);
    }
    *all = false;
}

int ek_thought_look(const ek_thought *t, const int32_t *draft, int n_draft, int n_words, int n_vocab, uint64_t *row,
                    bool *all)
{
    ek_thought ahead = *t;
    for (int i = 0; t->max > 0 && i <= n_draft; i++, row += n_words) {
        narrow(&ahead, n_words, n_vocab, row, &all[i]);
        if (i == n_draft) break;
        if (!all[i] && !is_set(row, draft[i])) return i;
        ek_thought_accept(&ahead, draft[i]);
    }
    return n_draft;
}

int ek_thought_peek(const ek_thought *t, const int32_t *draft, int n_draft, bool *all)
{
    ek_thought ahead = *t;
    for (int i = 0; t->max > 0 && i <= n_draft; i++) {
        bool spent = ahead.n >= ahead.max;
        if (spent && ahead.inside) return -1; /* the row of logits decides whether the closing marker may come */
        if (spent) all[i] = false;
        if (i == n_draft) break;
        if (spent && draft[i] == ahead.open) return i;
        ek_thought_accept(&ahead, draft[i]);
    }
    return n_draft;
}

static const char *const texts[] = {[EK_TEXT_FREE] = "free",
                                    [EK_TEXT_JSON_OBJECT] = "json_object",
                                    [EK_TEXT_JSON_SCHEMA] = "json_schema",
                                    [EK_TEXT_CHOICE] = "choice"};

static bool has_schema(ek_text_form form)
{
    return form == EK_TEXT_JSON_SCHEMA || form == EK_TEXT_CHOICE;
}
enum { N_TEXTS = sizeof texts / sizeof *texts };

static void put_value(ek_buf *out, const char *key, const json_t *v)
{
    if (!v) return;
    ek_buf_fmt(out, ",\"%s\":", key);
    ek_json_write(out, v);
}

static void put_tool(ek_buf *out, const json_t *tool, const ek_reply_form *form)
{
    const json_t *f = ek_json_get(tool, "function"), *strict = ek_json_get(f, "strict");
    size_t n = 0;
    const char *name = ek_json_get_text(f, "name", &n);
    ek_buf_str(out, "{\"function\":{\"name\":");
    ek_json_quote(out, name ? name : "", n);
    put_value(out, "strict", strict);
    if (ek_grammar_reads(tool, form)) put_value(out, "parameters", ek_json_get(f, "parameters"));
    ek_buf_str(out, "}}");
}

void ek_form_write(ek_buf *out, const ek_reply_form *form, const json_t *tools, bool one_call)
{
    ek_buf_fmt(out, "{\"text\":\"%s\",\"lenient\":%s,\"calls_required\":%s,\"one_call\":%s", texts[form->text],
               form->lenient ? "true" : "false", form->calls_required ? "true" : "false", one_call ? "true" : "false");
    if (has_schema(form->text)) put_value(out, "schema", form->schema);
    put_value(out, "only", form->only);
    if (tools) ek_buf_str(out, ",\"tools\":[");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        if (i > 0) ek_buf_char(out, ',');
        put_tool(out, json_array_get(tools, i), form);
    }
    ek_buf_str(out, tools ? "]}" : "}");
}

static ek_err read_form(const json_t *o, ek_reply_form *form, bool *one_call)
{
    const char *text = ek_json_get_text(o, "text", NULL);
    int i = 0;
    while (text && i < N_TEXTS && strcmp(text, texts[i])) i++;
    if (!text || i == N_TEXTS)
        return ek_fail(EK_EINVAL, "form: its text is none of free, json_object, json_schema, choice");
    *form = (ek_reply_form){.text = (ek_text_form)i,
                            .schema = ek_json_get(o, "schema"),
                            .lenient = json_is_true(ek_json_get(o, "lenient")),
                            .calls_required = json_is_true(ek_json_get(o, "calls_required")),
                            .only = ek_json_get(o, "only")};
    *one_call = json_is_true(ek_json_get(o, "one_call"));
    if (has_schema(form->text) && !form->schema) return ek_fail(EK_EINVAL, "form: a schema is needed");
    return EK_OK;
}

ek_err ek_form_grammar(ek_grammar **out, ek_vocab *v, const char *text, size_t n)
{
    json_t *o;
    ek_reply_form form;
    bool one_call = false;
    EK_TRY(ek_json_read(&o, text, n, 0));
    ek_err err = read_form(o, &form, &one_call);
    if (!err) err = ek_grammar_open(out, v, &form, ek_json_get(o, "tools"), one_call);
    json_decref(o);
    return err;
}
