/* Bodies of OpenAI's completions, and the prompts made of them: texts or lists of tokens, as they stand. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/api/field.h"
#include "serve/api/members.h"
#include "serve/openai/openai_completions.h"
#include "text/json/json.h"

enum {
    ECHO_COPIES = 6
}; /* of a prompt that each choice repeats: its piece of the reply, and that until the client has read it */

static void free_own(void *p)
{
    ek_openai_completion *o = p;
    json_decref(o->prompt);
    for (int i = 0; i < EK_OPENAI_CHOICES_MAX; i++) ek_buf_fini(&o->echoed[i]);
    free(o);
}

/* --- the body --- */

static bool is_ids(const json_t *v)
{
    return json_is_array(v) && json_array_size(v) > 0 && json_is_integer(json_array_get(v, 0));
}

/* prompt is one text or list of tokens, or a list of such. */
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
    ek_openai_completion *o = r->own;
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
    const ek_openai_completion *o = r->own;
    int64_t v;
    bool found;
    if (json_is_false(ek_field(body, "logprobs"))) return EK_OK;
    EK_TRY(ek_field_int(r, body, "logprobs", 0, EK_LOGPROBS_MAX, &v, &found));
    r->turn.logprobs = found;
    r->turn.prompt_logprobs = found && o->echo;
    if (found) r->turn.n_top = (int)v;
    return EK_OK;
}

/* What would change the reply and does not exist here. */
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
    ek_openai_completion *o = r->own = ek_alloc(sizeof *o);
    bool skip_special = true;
    r->free_own = free_own;
    o->bos = true;
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
    EK_TRY(ek_openai_include_usage(r, body, &o->include_usage));
    r->turn.plain = true;
    r->turn.show_special = !skip_special;
    return ek_field_ours(r, body, limits);
}

ek_err ek_openai_completion_parse(ek_api_request *r, const char *text, size_t n, const ek_api_limits *limits)
{
    return ek_field_body(r, text, n, limits, read_body);
}

/* --- the prompts --- */

static void write_echo(ek_buf *out, const ek_tokenizer *t, const ek_turn_opts *o, const ek_ids *ids)
{
    for (size_t i = 0; i < ids->len; i++) {
        size_t n;
        const char *s = ek_tokenizer_bytes(t, ids->data[i], &n);
        if (ek_completion_shows(t, o, ids->data[i])) ek_buf_add(out, s, n);
    }
}

static ek_err make_one(ek_turn_prompt *out, const ek_chat_model *m, const ek_api_request *r, const json_t *v)
{
    const ek_openai_completion *o = r->own;
    size_t ctx = (size_t)r->prompt.ctx_tokens;
    if (ek_json_is_text(v))
        EK_TRY(ek_openai_text_prompt(out, m, json_string_value(v), json_string_length(v), o->bos, &r->prompt));
    for (size_t i = 0; i < json_array_size(v); i++)
        ek_ids_add(&out->ids, (int32_t)json_integer_value(json_array_get(v, i)));
    if (out->ids.len == 0) return ek_fail(EK_EINVAL, "prompt: it has no token");
    if (out->ids.len < ctx) return EK_OK;
    return ek_fail(EK_ETOOLONG, "prompt is too long: %zu tokens > %zu maximum", out->ids.len, ctx - 1);
}

ek_err ek_openai_completion_prompts(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r)
{
    ek_openai_completion *o = r->own;
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
