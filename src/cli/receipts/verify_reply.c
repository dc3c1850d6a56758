/* Checks of a receipt that need only tokens: the text, the end of the reply, the seed; and the client's prompt. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/receipts/verify.h"
#include "serve/api/dialect.h"

/* --- the prompt --- */

static bool is_it(const ek_receipt *r, const ek_turn_prompt *p)
{
    ek_commit_part *part = ek_alloc(((size_t)p->n_parts + 1) * sizeof *part);
    for (int i = 0; i < p->n_parts; i++) {
        part[i] = (ek_commit_part){.first = p->part[i].first, .kind = (int32_t)p->part[i].media->kind};
        memcpy(part[i].digest, p->part[i].media->digest, sizeof part[i].digest);
    }
    const ek_hash h = ek_commit_tokens(&r->opening.secret, EK_LABEL_PROMPT, p->ids.data, p->ids.len, part,
                                       (size_t)p->n_parts);
    free(part);
    const int n = r->statement.prompt.n;
    return (n < 0 || (size_t)n == p->ids.len) && ek_hash_equal(&h, &r->statement.prompt.commitment);
}

static bool is_ids(ek_turn_prompt *out, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX) return false;
        ek_ids_add(&out->ids, (int32_t)json_integer_value(v));
    }
    return json_array_size(list) > 0;
}

/* --- the options of the body --- */

static bool same_float(float a, float b)
{
    return a == b;
}

/* The first option whose value in the body differs from the receipt; NULL: none. */
static const char *other_option(const ek_receipt *r, const ek_api_request *req)
{
    const ek_statement *s = &r->statement;
    const ek_sampling *o = &req->turn.sampling;
    const bool draws = s->sampling.temperature >= EK_MIN_TEMPERATURE;
    const int max_tokens = req->turn.max_tokens < s->ends.context ? req->turn.max_tokens : s->ends.context;
    if (*req->nonce && strcmp(req->nonce, s->nonce) != 0) return "nonce";
    if (!same_float(o->temperature, s->sampling.temperature)) return "temperature";
    if (draws && !same_float(o->top_p, s->sampling.top_p)) return "top_p";
    if (draws && !same_float(o->min_p, s->sampling.min_p)) return "min_p";
    if (draws && o->top_k != s->sampling.top_k) return "top_k";
    if (!same_float(o->repetition_penalty, s->sampling.repetition_penalty)) return "repetition_penalty";
    if (!same_float(o->presence_penalty, s->sampling.presence_penalty)) return "presence_penalty";
    if (!same_float(o->frequency_penalty, s->sampling.frequency_penalty)) return "frequency_penalty";
    if (max_tokens != s->ends.max_tokens) return "max_tokens";
    if (req->turn.ignore_eos != s->ends.ignore_eos) return "ignore_eos";
    if ((size_t)req->turn.n_stop != r->opening.n_stop) return "stop";
    for (int i = 0; i < req->turn.n_stop; i++)
        if (req->turn.stop_len[i] != r->opening.stop_len[i] ||
            memcmp(req->turn.stop[i], r->opening.stop[i], req->turn.stop_len[i]) != 0)
            return "stop";
    bool seed = !req->has_seed || !draws;
    for (int i = 0; i < req->n && !seed; i++) seed = s->sampling.seed == ek_choice_seed(o->seed, i);
    if (!seed) return "seed";
    const char *form = req->form_text.len ? req->form_text.data : "";
    if (req->form_text.len != r->opening.n_form ||
        memcmp(form, r->opening.form ? r->opening.form : "", r->opening.n_form))
        return "the form (response_format, tools, tool_choice)";
    if (!req->turn.plain && req->turn.max_thinking != s->form.max_thinking) return "the limit of thoughts";
    return NULL;
}

static void check_options(ek_report *out, const char *other)
{
    if (other)
        ek_report_add(out, EK_VERIFIED_WRONG, "your options", "another %s was signed than the body asks for", other);
    else ek_report_add(out, EK_VERIFIED_OK, "your options", "they are those of the body");
}

static const ek_dialect *dialect_of(const char *path)
{
    for (const ek_dialect *const *d = ek_dialects; *d; d++)
        if (!strcmp((*d)->path, path) && (*d)->end) return *d;
    return NULL;
}

/* Reads the body as the receipt's API does; true if the tokens are the receipt's. *read: the API accepts the body. */
static bool by_dialect(ek_report *out, bool options, const ek_receipt *r, const ek_chat_model *chat,
                       const ek_config *config, const char *text, size_t n, ek_asked *found, bool *read)
{
    const ek_dialect *d = dialect_of(r->statement.api);
    ek_api_limits l = {.defaults = ek_sampling_greedy(),
                       .n_vocab = config->vocab_size,
                       .ctx_tokens = r->statement.ends.context,
                       .keep_forms = true,
                       .media = &chat->media,
                       .receipts = true};
    l.defaults.temperature = config->temperature;
    l.defaults.top_p = config->top_p;
    l.defaults.top_k = config->top_k;
    ek_api_request req = {0};
    ek_turn_prompt prompt = {0};
    const ek_err err = d ? ek_api_prepare(&req, &prompt, d, chat, text, n, &l)
                         : ek_fail(EK_ENOTFOUND, "no API here is at %.80s", r->statement.api);
    bool same = false;
    *read = !err;
    for (int i = 0; !err && !same && i <= req.n_more; i++) {
        ek_turn_prompt *p = i ? &req.more[i - 1] : &prompt;
        same = is_it(r, p);
        if (!same) continue;
        *found = (ek_asked){.prompt = *p, .past = req.past_calls, .knows_past = true};
        *p = (ek_turn_prompt){0}, req.past_calls = (ek_past_calls){0};
    }
    if (same && options) check_options(out, other_option(r, &req));
    ek_turn_prompt_fini(&prompt);
    ek_api_request_fini(&req);
    return same;
}

bool ek_verify_prompt(ek_report *out, const ek_receipt *r, const ek_chat_model *chat, const ek_config *config,
                      const char *text, size_t n, ek_asked *found)
{
    json_t *v = NULL;
    bool same = false, read = false;
    *found = (ek_asked){0};
    if (!r->has_opening) {
        ek_report_add(out, EK_VERIFIED_CANNOT, "your prompt", "the receipt has no opening, and so no salt");
        return false;
    }
    const ek_err err = ek_json_read(&v, text, n, 0);
    if (!err && json_is_array(v)) {
        read = is_ids(&found->prompt, v);
        same = read && is_it(r, &found->prompt);
    } else if (!chat) {
        ek_report_add(out, EK_VERIFIED_CANNOT, "your prompt",
                      "a body or a text needs --model, whose tokens it becomes");
        json_decref(v);
        return false;
    } else if (!err && json_is_object(v)) {
        const json_t *body = ek_json_get(v, "body"); /* a line of a batch */
        ek_buf inner = {0};
        if (json_is_object(body)) ek_json_write(&inner, body);
        same = by_dialect(out, true, r, chat, config, inner.len ? inner.data : text, inner.len ? inner.len : n, found,
                          &read);
        ek_buf_fini(&inner);
    } else {
        json_t *o = json_pack("{s:s%}", "prompt", text, n);
        ek_buf body = {0};
        if (o) ek_json_write(&body, o);
        if (body.len) same = by_dialect(out, false, r, chat, config, body.data, body.len, found, &read);
        ek_buf_fini(&body);
        json_decref(o);
    }
    json_decref(v);
    if (same) ek_report_add(out, EK_VERIFIED_OK, "your prompt", "it has the %zu signed tokens", found->prompt.ids.len);
    else if (read && r->statement.prompt.n < 0)
        ek_report_add(out, EK_VERIFIED_WRONG, "your prompt", "it has other tokens than those that were signed");
    else if (read)
        ek_report_add(out, EK_VERIFIED_WRONG, "your prompt",
                      "it has other tokens than the %d that were signed: something was added, left out or changed",
                      r->statement.prompt.n);
    else
        ek_report_add(out, EK_VERIFIED_CANNOT, "your prompt", "%.40s does not take it: %.150s", r->statement.api,
                      ek_err_text());
    if (!same) ek_asked_fini(found);
    return same;
}

void ek_asked_fini(ek_asked *a)
{
    ek_turn_prompt_fini(&a->prompt);
    ek_past_calls_fini(&a->past);
}

/* --- the reply --- */

static const char *name_of(ek_turn_end end)
{
    return end == EK_END_STOP          ? "stop"
           : end == EK_END_CALLS       ? "tool_calls"
           : end == EK_END_STOP_STRING ? "stop_string"
           : end == EK_END_MAX_TOKENS  ? "length"
           : end == EK_END_CONTEXT     ? "context"
           : end == EK_END_LOOP        ? "loop"
                                       : "none";
}

static bool is_stop(const ek_config *c, int32_t token)
{
    for (int i = 0; i < c->n_stop; i++)
        if (c->stop[i] == token) return true;
    return false;
}

static void ignore(void *arg, const ek_reply_event *e)
{
    (void)arg, (void)e;
}

/* Gives the tokens to a turn as the engine would; NULL if the stop strings are not the receipt's. */
static ek_turn *read_tokens(const ek_receipt *r, const ek_opened *m, const ek_past_calls *past, int *used)
{
    const ek_statement *s = &r->statement;
    const ek_opening *o = &r->opening;
    const ek_config *c = ek_model_config(m->model);
    ek_turn *t;
    ek_turn_prompt prompt = {.ids = {.data = o->prompt, .len = o->n_prompt}, .thinking = s->form.thinking};
    ek_turn_opts opts = {.tools_active = s->ends.calls,
                         .one_call = s->ends.one_call,
                         .plain = s->ends.plain,
                         .show_special = s->ends.special,
                         .ignore_eos = s->ends.ignore_eos,
                         .max_tokens = s->ends.max_tokens,
                         .past_calls = past,
                         .stop_loops = !strcmp(s->reply.finish, "loop"),
                         .sampling = ek_sampling_greedy()};
    for (size_t i = 0; i < o->n_stop && i < EK_STOP_MAX; i++) {
        opts.stop[i] = o->stop[i];
        opts.stop_len[i] = o->stop_len[i];
        opts.n_stop++;
    }
    if (ek_turn_open(&t, &m->chat, &prompt, &opts, ignore, NULL)) return NULL;
    const int room = s->ends.context - (int)o->n_prompt, limit = s->ends.max_tokens < room ? s->ends.max_tokens : room;
    const ek_turn_result *result = ek_turn_result_of(t);
    for (*used = 0; *used < (int)o->n_reply && result->end == EK_END_NONE; ++*used) {
        ek_turn_news news = {.token = o->reply[*used], .n_prompt = (int)o->n_prompt};
        if (!s->ends.ignore_eos && is_stop(c, news.token)) news.finish = EK_FINISH_STOP;
        else if (*used + 1 == limit) news.finish = EK_FINISH_LENGTH;
        ek_turn_feed(t, &news);
    }
    return t;
}

static void check_end(ek_report *out, const ek_receipt *r, const ek_asked *asked, const ek_turn_result *result,
                      int used)
{
    const ek_statement *s = &r->statement;
    const char *end = s->ends.max_tokens == 0 ? "length" : name_of(result->end);
    const bool calls = result->answer.n_calls > 0 && !result->answer.open &&
                       (result->end == EK_END_NONE || result->end == EK_END_CALLS);
    if (used == s->reply.n && !strcmp(s->reply.finish, "loop") && calls && !asked->knows_past) {
        ek_report_add(out, EK_VERIFIED_UNCHECKED, "end",
                      "the reply ends with a call that was made before: the calls before it come with --prompt");
        return;
    }
    if (used == s->reply.n && !strcmp(end, s->reply.finish))
        ek_report_add(out, EK_VERIFIED_OK, "end", "the reply ends where it has to: %s", end);
    else if (used < s->reply.n)
        ek_report_add(out, EK_VERIFIED_WRONG, "end", "the reply runs on: it ends after %d of its %d tokens (%s)", used,
                      s->reply.n, end);
    else
        ek_report_add(out, EK_VERIFIED_WRONG, "end", "the receipt says \"%s\", its %d tokens and limits say \"%s\"",
                      s->reply.finish, s->reply.n, end);
}

static void check_text(ek_report *out, const ek_receipt *r, const ek_opened *m)
{
    ek_buf text = {0};
    for (size_t t = 0; t < r->opening.n_reply; t++) {
        size_t n;
        const char *bytes = ek_tokenizer_bytes(m->chat.tokenizer, r->opening.reply[t], &n);
        ek_buf_add(&text, bytes, n);
    }
    const ek_hash h = ek_commit_bytes(&r->opening.secret, EK_LABEL_TEXT, text.len, text.data, text.len);
    const bool same = ek_hash_equal(&h, &r->statement.reply.text);
    ek_report_add(out, same ? EK_VERIFIED_OK : EK_VERIFIED_WRONG, "text",
                  same ? "the signed text is that of the tokens" : "the signed text is not that of the tokens");
    ek_buf_fini(&text);
}

/* Appends the texts at `key` of the objects in a list whose `type` is kind. */
static void add_texts(ek_buf *out, const json_t *list, const char *kind)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t n;
        const json_t *item = json_array_get(list, i);
        const char *type = ek_json_get_text(item, "type", NULL), *text = ek_json_get_text(item, "text", &n);
        if (type && text && !strcmp(type, kind)) ek_buf_add(out, text, n);
        if (type && !strcmp(type, "message")) add_texts(out, ek_json_get(item, "content"), kind);
    }
}

/* Whether the object is the last event of a stream with n choices: it has one of the choices, and no text. */
static bool is_event(const json_t *choices, int n)
{
    size_t len;
    const json_t *only = json_array_get(choices, 0);
    const char *text = ek_json_get_text(only, "text", &len);
    return n > 1 && json_array_size(choices) == 1 && (ek_json_get(only, "delta") || (text && len == 0));
}

/* The visible text of a whole reply of any API, or of its choice (NULL: none). False: the reply has no known text. */
static bool content_of(ek_buf *out, const json_t *choice, const json_t *reply)
{
    size_t n;
    const json_t *message = ek_json_get(choice ? choice : reply, "message");
    const char *text = ek_json_get_text(choice ? choice : reply, choice ? "text" : "response", &n);
    if (message) text = ek_json_get_text(message, "content", &n);
    if (text) ek_buf_add(out, text, n);
    add_texts(out, ek_json_get(reply, "content"), "text");
    add_texts(out, ek_json_get(reply, "output"), "output_text");
    return text || message || ek_json_get(reply, "content") || ek_json_get(reply, "output");
}

static void check_body(ek_report *out, const json_t *reply, int i, int n, const ek_turn_result *result)
{
    ek_buf text = {0};
    const ek_buf *want = &result->answer.content;
    const json_t *choices = ek_json_get(reply, "choices"), *choice = json_array_get(choices, (size_t)i),
                 *index = ek_json_get(choice, "index");
    const size_t n_choices = json_array_size(choices);
    if (is_event(choices, n)) return;
    if (n_choices > 0 && (n_choices != (size_t)n || !json_is_integer(index) || json_integer_value(index) != i)) {
        ek_report_add(out, EK_VERIFIED_WRONG, "words",
                      "the reply has %zu choices, one for each of %d receipts is needed, and %d as number %d",
                      n_choices, n, i, i);
        return;
    }
    if (!content_of(&text, choice, reply)) {
        ek_buf_fini(&text);
        return;
    }
    const bool same = text.len == want->len && (text.len == 0 || !memcmp(text.data, want->data, text.len));
    const bool longer = text.len > want->len &&
                        !memcmp(text.data + text.len - want->len, ek_buf_text(want), want->len) &&
                        !ek_json_get(reply, "message");
    if (same) ek_report_add(out, EK_VERIFIED_OK, "words", "the reply's words are those of the signed tokens");
    else if (longer && ek_json_get_text(choice, "text", NULL))
        ek_report_add(out, EK_VERIFIED_UNCHECKED, "words",
                      "before the signed words stand others: a prompt that is repeated?");
    else ek_report_add(out, EK_VERIFIED_WRONG, "words", "the reply's words are not those of the signed tokens");
    ek_buf_fini(&text);
}

/* Choice i > 0 of several. It draws with a seed that follows from the first choice's. */
static void check_seed(ek_report *out, const ek_receipt *r)
{
    enum { CHOICES = 128 };
    const ek_statement *s = &r->statement;
    const uint64_t first = ek_nonce_seed(s->nonce, r->opening.prompt, r->opening.n_prompt);
    if (s->sampling.from == EK_SEED_SERVER)
        ek_report_add(out, EK_VERIFIED_UNCHECKED, "seed",
                      "the server chose it, perhaps among many: a client's seed or nonce leaves it no choice");
    if (s->sampling.from != EK_SEED_NONCE) return;
    bool same = false;
    for (int i = 0; i < CHOICES && !same; i++) same = s->sampling.seed == ek_choice_seed(first, i);
    ek_report_add(out, same ? EK_VERIFIED_OK : EK_VERIFIED_WRONG, "seed",
                  same ? "it follows from the nonce and the prompt"
                       : "it does not follow from the nonce and the prompt");
}

void ek_verify_reply(ek_report *out, const ek_receipt *r, const ek_opened *m, const ek_asked *asked,
                     const json_t *reply, int i, int n)
{
    int used = 0;
    check_text(out, r, m);
    check_seed(out, r);
    ek_turn *t = read_tokens(r, m, &asked->past, &used);
    if (!t) {
        ek_report_add(out, EK_VERIFIED_CANNOT, "end", "%s", ek_err_text());
        return;
    }
    check_end(out, r, asked, ek_turn_result_of(t), used);
    check_body(out, reply, i, n, ek_turn_result_of(t));
    ek_turn_close(t);
}
