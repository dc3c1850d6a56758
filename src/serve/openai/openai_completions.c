/* The dialect of OpenAI's completions: texts are continued without the chat template, and the reply is the decoded text
 * without the reply parser. Special tokens spelled out in a prompt count as those tokens. */

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/api/field.h"
#include "serve/api/openai.h"
#include "text/json/json.h"
#include "text/utf8.h"

/* The progress of a choice's stream. */
typedef struct progress {
    int n_logprobs;        /* sent */
    size_t bytes, n_chars; /* bytes and characters of the content before the next token to be sent, for text_offset */
} progress;

static const char object[] = "text_completion";

/* ek_api_request.own. */
typedef struct completion {
    json_t *prompt; /* kept until the prompts are made */
    bool bos, echo;
    ek_openai_stream stream;
    ek_buf echoed[EK_OPENAI_CHOICES_MAX]; /* per prompt: its text, with echo */
    progress choice[EK_OPENAI_CHOICES_MAX];
} completion;

/* Whether a reply's text, or an echo of its prompt, has this token. */
static bool is_shown(const ek_tokenizer *t, const ek_turn_opts *o, int32_t id)
{
    return o->show_special || !ek_tokenizer_is_special(t, id);
}

/* Copies of the echo per choice: in the reply, and until the client has read it. */
enum { ECHO_COPIES = 6 };

static void free_own(void *p)
{
    completion *o = p;
    json_decref(o->prompt);
    for (int i = 0; i < EK_OPENAI_CHOICES_MAX; i++) ek_buf_fini(&o->echoed[i]);
    free(o);
}

/* --- the body --- */

static bool is_ids(const json_t *v)
{
    return json_is_array(v) && json_array_size(v) > 0 && json_is_integer(json_array_get(v, 0));
}

/* The number of prompts: one text or list of tokens, or a list of these. */
static int count_prompts(const json_t *v)
{
    size_t n = json_is_array(v) && !is_ids(v) ? json_array_size(v) : 1;
    return n > EK_OPENAI_CHOICES_MAX ? EK_OPENAI_CHOICES_MAX + 1 : (int)n;
}

static const json_t *prompt_at(const json_t *v, int i)
{
    return json_is_array(v) && !is_ids(v) ? json_array_get(v, (size_t)i) : v;
}

static ek_err check_prompt(ek_api_request *r, const json_t *v, int n_vocab)
{
    if (ek_json_is_text(v)) return EK_OK;
    if (!is_ids(v)) return ek_field_wrong(r, "prompt", "a text, a list of tokens, or a list of such is needed");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= n_vocab) {
            r->param = "prompt";
            return ek_fail(EK_EINVAL, "prompt: tokens are whole numbers from 0 to %d", n_vocab - 1);
        }
    }
    return EK_OK;
}

static ek_err read_prompts(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    completion *o = r->own;
    const json_t *v = ek_field(body, "prompt");
    int n = count_prompts(v);
    if (n == 0) return ek_field_wrong(r, "prompt", "a list of at least one prompt is needed");
    if (n * r->n > EK_OPENAI_CHOICES_MAX)
        return ek_field_wrong(r, "prompt", "at most 64 replies, prompts times n, are made for a request");
    for (int i = 0; i < n; i++) EK_TRY(check_prompt(r, prompt_at(v, i), limits->n_vocab));
    o->prompt = json_incref((json_t *)(uintptr_t)v);
    r->n *= n;
    r->n_more = n - 1;
    r->more = ek_alloc((size_t)n * sizeof *r->more);
    return EK_OK;
}

static ek_err read_logprobs(ek_api_request *r, const json_t *body)
{
    const completion *o = r->own;
    int64_t v;
    bool found;
    if (json_is_false(ek_field(body, "logprobs"))) return EK_OK;
    EK_TRY(ek_field_int(r, body, "logprobs", 0, EK_LOGPROBS_MAX, &v, &found));
    r->turn.logprobs = found;
    r->turn.prompt_logprobs = found && o->echo;
    if (found) r->turn.n_top = (int)v;
    return EK_OK;
}

/* Refuses fields that would change the reply and are not supported. */
static ek_err refuse_unsupported(ek_api_request *r, const json_t *body)
{
    const json_t *suffix = ek_field(body, "suffix"), *best = ek_field(body, "best_of");
    if (suffix && !(ek_json_is_text(suffix) && json_string_length(suffix) == 0))
        return ek_field_wrong(r, "suffix", "not supported: the model continues texts, it does not fill gaps");
    int64_t v = r->n;
    if (best && (!json_is_integer(best) || json_integer_value(best) != v))
        return ek_field_wrong(r, "best_of", "only the value of n is supported");
    return EK_OK;
}

static ek_err read_body(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    completion *o = r->own = ek_alloc(sizeof *o);
    bool skip_special = true;
    r->free_own = free_own;
    o->bos = true;
    o->stream = (ek_openai_stream){.object = object, .nothing = "\"text\":\"\""};
    EK_TRY(ek_members_check(r, body, EK_MEMBERS_COMPLETIONS));
    EK_TRY(ek_field_model(r, body));
    EK_TRY(ek_openai_counts(r, body));
    if (!ek_field(body, "max_tokens") && !ek_field(body, "max_completion_tokens")) r->turn.max_tokens = 16;
    EK_TRY(refuse_unsupported(r, body));
    EK_TRY(read_prompts(r, body, limits));
    EK_TRY(ek_openai_format(r, ek_field(body, "response_format"), "response_format"));
    EK_TRY(ek_openai_guided(r, body, limits));
    EK_TRY(ek_openai_stop(r, body, "stop"));
    EK_TRY(ek_openai_sampling(r, body, limits));
    EK_TRY(ek_field_bool(r, body, "echo", &o->echo));
    EK_TRY(read_logprobs(r, body));
    EK_TRY(ek_field_bool(r, body, "add_special_tokens", &o->bos));
    EK_TRY(ek_field_bool(r, body, "skip_special_tokens", &skip_special));
    EK_TRY(ek_field_bool(r, body, "ignore_eos", &r->turn.ignore_eos));
    EK_TRY(ek_field_bool(r, body, "stream", &r->stream));
    EK_TRY(ek_field_bool(r, body, "return_progress", &r->progress));
    EK_TRY(ek_openai_include_usage(r, body, &o->stream.include_usage));
    r->turn.plain = true;
    r->turn.show_special = !skip_special;
    return ek_field_ours(r, body, limits);
}

/* --- the prompts --- */

static void write_echo(ek_buf *out, const ek_tokenizer *t, const ek_turn_opts *o, const ek_ids *ids)
{
    for (size_t i = 0; i < ids->len; i++) {
        size_t n;
        const char *s = ek_tokenizer_bytes(t, ids->data[i], &n);
        if (is_shown(t, o, ids->data[i])) ek_buf_add(out, s, n);
    }
}

static ek_err make_one(ek_turn_prompt *out, const ek_chat_model *m, const ek_api_request *r, const json_t *v)
{
    const completion *o = r->own;
    size_t ctx = (size_t)r->prompt.ctx_tokens;
    if (ek_json_is_text(v))
        EK_TRY(ek_openai_text_prompt(out, m, json_string_value(v), json_string_length(v), o->bos, &r->prompt));
    for (size_t i = 0; i < json_array_size(v); i++)
        ek_ids_add(&out->ids, (int32_t)json_integer_value(json_array_get(v, i)));
    if (out->ids.len == 0) return ek_fail(EK_EINVAL, "prompt: it has no token");
    if (out->ids.len < ctx) return EK_OK;
    return ek_fail(EK_ETOOLONG, "prompt is too long: %zu tokens > %zu maximum", out->ids.len, ctx - 1);
}

static ek_err make_prompts(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r)
{
    completion *o = r->own;
    size_t per_prompt = (size_t)(r->n / (1 + r->n_more));
    for (int i = 0; i <= r->n_more; i++) {
        ek_turn_prompt *p = i == 0 ? out : &r->more[i - 1];
        EK_TRY(make_one(p, m, r, prompt_at(o->prompt, i)));
        if (o->echo) write_echo(&o->echoed[i], m->tokenizer, &r->turn, &p->ids);
        r->own_bytes += o->echoed[i].cap + per_prompt * ECHO_COPIES * o->echoed[i].len;
    }
    json_decref(o->prompt);
    o->prompt = NULL;
    return EK_OK;
}

/* --- log-probabilities, in the API's old shape: four lists --- */

/* The tokens of one piece of a reply: all tokens of the prompt or none, and those of the content from `from` to
 * `end`. */
typedef struct span {
    const ek_turn_result *t;
    int n_prompt, from, end;
} span;

static const ek_logprobs *entry(const span *s, int i)
{
    return i < s->n_prompt ? &s->t->prompt_logprobs[i] : &s->t->logprobs[s->from + i - s->n_prompt].at;
}

static void put_token(ek_buf *out, const ek_api_reply *r, int32_t token)
{
    ek_openai_token(out, r, token, "bytes:");
}

static bool is_taken(const ek_buf *name, const ek_buf *key, int n)
{
    for (int i = 0; i < n; i++)
        if (key[i].len == name->len && !memcmp(key[i].data, name->data, name->len)) return true;
    return false;
}

/* Writes a name for the token that differs from key[0 .. n): the usual one, else one by its bytes, else vLLM's form by
 * its id. */
static void name_apart(ek_buf *out, const ek_api_reply *r, int32_t token, const ek_buf *key, int n)
{
    put_token(out, r, token);
    if (!is_taken(out, key, n)) return;
    ek_buf_clear(out);
    ek_openai_token_bytes(out, r, token, "bytes:");
    if (!is_taken(out, key, n)) return;
    ek_buf_clear(out);
    ek_buf_fmt(out, "\"token_id:%d\"", token);
}

/* Writes the most likely tokens, and the token itself if it is not among them. It has the same name as in the list of
 * tokens, so that clients find it. Tokens with the same text get different names. */
static void put_top(ek_buf *out, const ek_api_reply *r, const ek_logprobs *p)
{
    ek_buf key[EK_LOGPROBS_MAX + 1] = {{0}};
    bool among = false;
    int n = 1;
    put_token(&key[0], r, p->self.token);
    ek_buf_char(out, '{');
    for (int k = 0; k < p->n_top; k++) {
        const ek_buf *name = &key[0];
        if (p->top[k].token == p->self.token) {
            among = true;
        } else {
            name_apart(&key[n], r, p->top[k].token, key, n);
            name = &key[n++];
        }
        ek_buf_fmt(out, "%s%s:", k ? "," : "", name->data);
        ek_openai_logprob(out, p->top[k].logprob);
    }
    if (!among) {
        ek_buf_fmt(out, "%s%s:", p->n_top ? "," : "", key[0].data);
        ek_openai_logprob(out, p->self.logprob);
    }
    ek_buf_char(out, '}');
    for (int i = 0; i <= EK_LOGPROBS_MAX; i++) ek_buf_fini(&key[i]);
}

static void put_offsets(ek_buf *out, const ek_api_reply *r, int choice, const span *s, progress *at)
{
    const completion *o = r->own;
    const ek_buf *echo = &o->echoed[choice / (r->n / r->n_prompts)];
    size_t chars = 0, before = o->echo ? ek_utf8_count(ek_buf_text(echo), echo->len) : 0;
    for (int i = 0; i < s->n_prompt; i++) {
        size_t n;
        int32_t id = entry(s, i)->self.token;
        const char *bytes = ek_tokenizer_bytes(r->tokenizer, id, &n);
        ek_buf_fmt(out, "%s%zu", i ? "," : "", chars);
        if (is_shown(r->tokenizer, r->turn, id)) chars += ek_utf8_count(bytes, n);
    }
    for (int i = s->from; i < s->end; i++) {
        size_t from = s->t->logprobs[i].from;
        at->n_chars += ek_utf8_count(s->t->answer.content.data + at->bytes, from - at->bytes);
        at->bytes = from;
        ek_buf_fmt(out, "%s%zu", s->n_prompt || i > s->from ? "," : "", before + at->n_chars);
    }
}

static void put_logprobs(ek_buf *out, const ek_api_reply *r, int choice, bool prompt, progress *at)
{
    const ek_turn_result *t = r->choices[choice];
    if (!r->turn->logprobs) {
        ek_buf_str(out, ",\"logprobs\":null");
        return;
    }
    span s = {.t = t, .n_prompt = prompt && t->prompt_logprobs ? t->n_prompt : 0, .from = at->n_logprobs};
    s.end = ek_openai_visible(t, s.from);
    int n = s.n_prompt + s.end - s.from;
    ek_buf_str(out, ",\"logprobs\":{\"tokens\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0) ek_buf_char(out, ',');
        put_token(out, r, entry(&s, i)->self.token);
    }
    ek_buf_str(out, "],\"token_logprobs\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0) ek_buf_char(out, ',');
        if (entry(&s, i)->n_top < 0) ek_buf_str(out, "null");
        else ek_openai_logprob(out, entry(&s, i)->self.logprob);
    }
    ek_buf_str(out, "],\"top_logprobs\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0) ek_buf_char(out, ',');
        if (entry(&s, i)->n_top < 0) ek_buf_str(out, "null");
        else put_top(out, r, entry(&s, i));
    }
    ek_buf_str(out, "],\"text_offset\":[");
    put_offsets(out, r, choice, &s, at);
    ek_buf_str(out, "]}");
    at->n_logprobs = s.end;
}

/* --- replies --- */

/* "text":…,"logprobs":… of one choice. */
static void put_text(ek_buf *out, const ek_api_reply *r, int choice, const char *text, size_t n, bool prompt,
                     progress *at)
{
    const completion *o = r->own;
    const ek_buf *echo = &o->echoed[choice / (r->n / r->n_prompts)];
    ek_buf b = {0};
    if (prompt && o->echo) ek_buf_add(&b, ek_buf_text(echo), echo->len);
    ek_buf_add(&b, text, n);
    ek_put_text_after(out, "\"text\":", ek_buf_text(&b), b.len);
    put_logprobs(out, r, choice, prompt, at);
    ek_buf_fini(&b);
}

static void chunk(ek_buf *out, const ek_api_reply *r, int choice, const char *text, size_t n, const char *finish,
                  bool prompt)
{
    completion *o = r->own;
    ek_openai_choice_open(out, r, &o->stream, choice);
    put_text(out, r, choice, text, n, prompt, &o->choice[choice]);
    ek_openai_choice_close(out, r, &o->stream, finish);
}

static void begin(ek_buf *out, const ek_api_reply *r, int choice)
{
    const completion *o = r->own;
    if (o->echo) chunk(out, r, choice, "", 0, NULL, true);
}

static void event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    if (e->kind == EK_REPLY_CONTENT && e->n > 0) chunk(out, r, choice, e->text, e->n, NULL, false);
}

static void finish(ek_buf *out, const ek_api_reply *r, int choice)
{
    chunk(out, r, choice, "", 0, ek_openai_finish_reason(r->choices[choice]), false);
}

static void progress_event(ek_buf *out, const ek_api_reply *r, const ek_api_progress *p)
{
    ek_openai_progress(out, r, &((const completion *)r->own)->stream, p);
}

static void failed(ek_buf *out, const ek_api_reply *r, int choice, const char *text)
{
    const completion *o = r->own;
    ek_openai_stream_failed(out, r, &o->stream, choice, text);
}

static void end(ek_buf *out, const ek_api_reply *r)
{
    const completion *o = r->own;
    if (r->stream) {
        ek_openai_stream_end(out, r, &o->stream);
        return;
    }
    ek_openai_head(out, r, object);
    ek_buf_str(out, ",\"choices\":[");
    for (int i = 0; i < r->n; i++) {
        const ek_buf *text = &r->choices[i]->answer.content;
        progress at = {0};
        ek_buf_fmt(out, "%s{\"index\":%d,", i ? "," : "", i);
        put_text(out, r, i, ek_buf_text(text), text->len, true, &at);
        ek_openai_finish(out, ek_openai_finish_reason(r->choices[i]));
    }
    ek_openai_whole_close(out, r);
}

const ek_dialect ek_dialect_openai_completions = {
    .path = "/v1/completions",
    .id_prefix = "cmpl-",
    .prompt_param = "prompt",
    .read = read_body,
    .prompt = make_prompts,
    .begin = begin,
    .event = event,
    .finish = finish,
    .end = end,
    .failed = failed,
    .progress = progress_event,
    .heartbeat = ek_openai_heartbeat,
    .error = ek_openai_error,
};
