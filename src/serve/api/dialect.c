#include "serve/api/dialect.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "base/clock.h"
#include "chat/bounds.h"
#include "base/hash/rng.h"
#include "serve/api/context.h"
#include "serve/api/field.h"
#include "serve/api/model_card.h"
#include "text/json/json.h"

/* --- the plan of a body --- */

void ek_plan_weigh(ek_body_plan *p, size_t n)
{
    if (!p) return;
    p->n_sum = n < SIZE_MAX - p->n_sum ? p->n_sum + n : SIZE_MAX;
    if (p->n_sum > p->max_beside) p->n_beside = p->n_sum;
}

/* Many small parts take as long as a large one. */
bool ek_plan_reads(ek_body_plan *p, size_t n)
{
    ek_plan_weigh(p, n);
    if (!p || p->n_sum <= p->max_beside) return true;
    p->too_large = true;
    return false;
}

bool ek_plan_runs(ek_body_plan *p)
{
    if (!p || p->may_wait) return true;
    p->no_program = true;
    return false;
}

bool ek_plan_lacks(const ek_body_plan *p)
{
    return p->too_large || p->no_fetched || p->no_program;
}

/* --- requests --- */

/* A schema's own errors begin with a position in it, "#/…". */
static ek_err make_grammar(ek_api_request *r, const ek_chat_model *m, bool keep_form)
{
    const json_t *tools = r->turn.tools_active ? r->tools : NULL;
    ek_reply_form *f = &r->form;
    f->schema = r->schema;
    f->only = r->only;
    bool forced = f->text != EK_TEXT_FREE || f->calls_required;
    if (forced && r->turn.ignore_eos)
        return ek_field_wrong(r, "ignore_eos", "a reply with a form ends where it is complete");
    if (f->text != EK_TEXT_FREE && r->prompt.continue_final)
        return ek_field_wrong(r, "continue_final_message", "a reply with a form cannot continue a message");
    ek_err err = ek_grammar_open(&r->grammar, m->vocab, f, tools, r->turn.one_call);
    r->turn.grammar = r->grammar;
    if (!err && r->grammar && keep_form) {
        ek_form_write(&r->form_text, f, tools, r->turn.one_call);
        r->turn.form = ek_buf_text(&r->form_text);
    }
    json_decref(r->schema);
    json_decref(r->only);
    r->schema = r->only = NULL;
    f->schema = f->only = NULL;
    if (!err) return EK_OK;
    bool own = (f->text == EK_TEXT_JSON_SCHEMA || f->text == EK_TEXT_CHOICE) && (ek_err_text()[0] == '#' || !tools);
    r->param = own ? r->form_param : "tools";
    return ek_fail_in(err, "%s", r->param);
}

static ek_err make_answer(ek_api_request *r, const ek_turn_prompt *prompt, const ek_dialect *d, const ek_chat_model *m,
                          const ek_api_limits *limits)
{
    size_t bytes = d->answer_bytes ? d->answer_bytes(m, r, prompt) : 0;
    if (bytes > 0 && limits->take) EK_TRY(limits->take(limits->count_arg, bytes));
    if (!ek_buf_reserve(&r->answer, bytes))
        return ek_fail(EK_ENOMEM, "the system has no memory for a reply of %zu bytes now, try again later", bytes);
    EK_TRY(d->answer(&r->answer, m, r, prompt));
    ek_buf *b = &r->answer; /* the bound was generous */
    char *data = b->cap > 2 * b->len ? realloc(b->data, b->len + 1) : NULL;
    if (data) b->data = data, b->cap = b->len + 1;
    return EK_OK;
}

static ek_err check_resumed(ek_api_request *r, const ek_turn_prompt *prompt, const ek_dialect *d,
                            const ek_chat_model *m, const ek_api_limits *limits)
{
    ek_resume *c = &r->resume;
    ek_sampling *s = &r->turn.sampling;
    if (strncmp(c->id, d->id_prefix, strlen(d->id_prefix)) != 0)
        return ek_fail(EK_EINVAL, "evenkeel.resume.id: ids of this path begin with %s", d->id_prefix);
    if (!r->has_seed && !c->has_seed && s->temperature >= EK_MIN_TEMPERATURE)
        return ek_fail(EK_EINVAL, "evenkeel.resume.seed: it is needed, from the stream's first event");
    if (!r->has_seed) s->seed = c->seed;
    return ek_resume_check(c, m, prompt, &r->turn, limits->n_vocab, limits->ctx_tokens);
}

/* Prepares a stream that can be resumed, or that resumes one. */
static ek_err prepare_resume(ek_api_request *r, const ek_turn_prompt *prompt, const ek_dialect *d,
                             const ek_chat_model *m, const ek_api_limits *limits)
{
    ek_resume *c = &r->resume;
    if ((!r->stream && c->tokens.len == 0) || (c->wished && r->n != 1)) c->on = false;
    if (!c->on) return EK_OK;
    if (r->n != 1)
        return ek_field_wrong(r, "evenkeel.resume", "only a stream of one reply continues: one prompt, and n is 1");
    const char *identity = limits->identity ? limits->identity : "";
    c->begin = ek_resume_begin(d->path, identity, prompt, &r->turn, ek_buf_text(&r->form_text));
    c->begin += limits->whole_calls; /* the events for the same tokens are then different */
    ek_err err = c->tokens.len > 0 ? check_resumed(r, prompt, d, m, limits) : EK_OK;
    if (err) r->param = "evenkeel.resume";
    return err;
}

/* The approximate size of the prompt's text. A body without a conversation counts whole. */
static size_t text_bytes(const ek_api_request *r, size_t n)
{
    if (r->turn.plain || r->conversation.n_messages == 0) return n;
    return ek_conversation_bytes(&r->conversation, r->declared ? r->declared : r->tools);
}

/* A reply names the model that wrote it; by the requested name, if that is one of the model's names. */
static ek_err settle_model(ek_api_request *r, const ek_model_card *card)
{
    size_t n = r->model ? strlen(r->model) : 0;
    if (n == 0) return EK_OK;
    if (n > EK_SERVED_BYTES) { /* every chunk repeats it, so long names are refused */
        r->param = "model";
        return ek_fail(EK_EINVAL, "model: the name has %zu bytes, at most %d are allowed", n, EK_SERVED_BYTES);
    }
    if (!card || ek_model_card_is(card, r->model)) return EK_OK;
    if (card->strict) {
        char asked[EK_QUOTED];
        r->param = "model";
        return ek_fail(EK_ENOTFOUND, "model: there is no %s here; this server has \"%s\" (--strict-model)",
                       ek_field_quote(asked, r->model, n), card->name);
    }
    free(r->model);
    r->model = ek_strdup(card->name);
    return EK_OK;
}

/* A batch's reply is whole, and its content does not depend on earlier requests. */
static ek_err check_batch(ek_api_request *r)
{
    if (r->stream) return ek_field_wrong(r, "stream", "the replies of a batch are whole");
    if (r->resume.tokens.len > 0) return ek_field_wrong(r, "evenkeel.resume", "a line of a batch continues no stream");
    if (r->says_share) return ek_field_wrong(r, "cache_hit_threshold", "a batch does not depend on caches");
    if (r->context && r->context->compact_at > 0 && !r->context->alone)
        return ek_field_wrong(r, "context_management",
                              "a line of a batch has one reply, and a summary before it is another");
    if (r->says_work) return ek_field_wrong(r, "kv_transfer_params", "a batch's replies are written where they began");
    return EK_OK;
}

void ek_api_limits_batch(ek_api_limits *l)
{
    l->batch = true;
    l->receipts = false; /* receipts have a time */
    l->responses = NULL;
    l->fetch = NULL;
    l->ffmpeg = NULL;
    l->pdftotext = NULL;
    l->pdftoppm = NULL;
    l->max_images = 0;
    l->resume = l->whole_calls = false;
}

ek_err ek_api_parse(ek_api_request *r, const ek_dialect *d, const char *body, size_t n, const ek_api_limits *limits)
{
    return d->parse ? d->parse(r, body, n, limits) : ek_field_body(r, body, n, limits, d->read);
}

ek_err ek_api_no_prompt(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r)
{
    (void)out, (void)m, (void)r;
    return EK_OK;
}

ek_err ek_api_read(ek_api_request *r, const ek_dialect *d, const char *body, size_t n, const ek_api_limits *limits)
{
    *r = (ek_api_request){0};
    EK_TRY(ek_api_parse(r, d, body, n, limits));
    if (limits->batch) EK_TRY(check_batch(r));
    EK_TRY(settle_model(r, limits->batch ? NULL : limits->card)); /* a batch's reply repeats the line's name */
    return ek_wanted_check();
}

ek_err ek_api_make(ek_api_request *r, ek_turn_prompt *prompt, const ek_dialect *d, const ek_chat_model *m, size_t n,
                   const ek_api_limits *limits)
{
    *prompt = (ek_turn_prompt){0};
    if (limits->text) EK_TRY(limits->text(limits->count_arg, text_bytes(r, n)));
    r->answered |= !d->end;
    r->prompt.headers = r->answered && !d->decodes;
    r->prompt.give = limits->give;
    r->prompt.ctx_tokens = d->end ? limits->ctx_tokens : INT_MAX;
    r->prompt.room = limits->take;
    r->prompt.room_arg = limits->count_arg;
    r->turn.tools = r->tools;
    if (!r->answered) EK_TRY(make_grammar(r, m, limits->keep_forms || r->resume.on));
    EK_TRY(ek_wanted_check());
    ek_err err = d->prompt ? d->prompt(prompt, m, r)
                           : ek_turn_prompt_make(prompt, m, &r->conversation, r->declared ? r->declared : r->tools,
                                                 &r->prompt);
    if (err && prompt->refused && d->refused) err = d->refused(err, (ek_part_kind)(prompt->refused - 1));
    if (err == EK_ETOOLONG && limits->batch) /* the number in the sentence depends on the machine */
        ek_fail(err, "prompt is too long: more than %d tokens", limits->ctx_tokens - 1);
    if (!d->prompt) err = ek_context_settle(r, prompt, m, err);
    if (!err && !r->answered && r->turn.tools_active) ek_past_calls_make(&r->past_calls, &r->conversation);
    ek_conversation_fini(&r->conversation);
    if (!err && r->answered) err = make_answer(r, prompt, d, m, limits);
    if (err == EK_ETOOLONG || err == EK_EINVAL) r->param = d->prompt_param;
    return err || r->answered ? err : prepare_resume(r, prompt, d, m, limits);
}

ek_err ek_api_prepare(ek_api_request *r, ek_turn_prompt *prompt, const ek_dialect *d, const ek_chat_model *m,
                      const char *body, size_t n, const ek_api_limits *limits)
{
    *prompt = (ek_turn_prompt){0};
    EK_TRY(ek_api_read(r, d, body, n, limits));
    return ek_api_make(r, prompt, d, m, n, limits);
}

bool ek_api_summarizes(const ek_api_request *r)
{
    return r->context && r->context->compacts && !r->context->alone;
}

void ek_api_request_fini(ek_api_request *r)
{
    ek_context_free(r->context);
    ek_past_calls_fini(&r->past_calls);
    ek_conversation_fini(&r->conversation);
    json_decref(r->tools);
    json_decref(r->declared);
    json_decref(r->by_name);
    json_decref(r->schema);
    json_decref(r->only);
    ek_resume_fini(&r->resume); /* before the grammar that it uses */
    ek_grammar_close(r->grammar);
    ek_buf_fini(&r->form_text);
    free(r->bias);
    for (int i = 0; i < EK_STOP_MAX; i++) free(r->stop[i]);
    free(r->model);
    ek_buf_fini(&r->salt_text);
    for (int i = 0; i < r->n_more; i++) ek_turn_prompt_fini(&r->more[i]);
    free(r->more);
    if (r->free_own) r->free_own(r->own);
    else free(r->own);
    ek_buf_fini(&r->answer);
    *r = (ek_api_request){0};
}

const char *ek_api_error_code(ek_err err, const char *param)
{
    if (err == EK_ETOOLONG) return "context_length_exceeded";
    return err == EK_ENOTFOUND && param && !strcmp(param, "model") ? "model_not_found" : NULL;
}

uint64_t ek_api_reply_digest(const ek_api_reply *r)
{
    uint64_t h = 0;
    if (r->n == 1) return r->choices[0]->digest;
    for (int i = 0; i < r->n; i++) h = ek_hash64(h, &r->choices[i]->digest, sizeof h);
    return h;
}

const ek_turn_prompt *ek_api_prompt_of(const ek_api_request *r, const ek_turn_prompt *first, int choice)
{
    int prompt = choice / (r->n / (1 + r->n_more));
    return prompt == 0 ? first : &r->more[prompt - 1];
}

bool ek_drop_billing(ek_buf *text)
{
    static const char start[] = "x-anthropic-billing-header:";
    const size_t len = sizeof start - 1;
    if (text->len < len || memcmp(text->data, start, len) != 0) return false;
    const char *newline = memchr(text->data, '\n', text->len);
    size_t skip = newline ? (size_t)(newline - text->data) + 1 : text->len;
    memmove(text->data, text->data + skip, text->len - skip + 1);
    text->len -= skip;
    return true;
}

void ek_drop_billing_line(ek_conversation *c)
{
    ek_message *m = c->n_messages ? &c->messages[0] : NULL;
    bool system = m && (m->role == EK_ROLE_SYSTEM || m->role == EK_ROLE_DEVELOPER);
    if (!system || m->n_blocks == 0 || m->blocks[0].kind != EK_BLOCK_TEXT) return;
    ek_buf *text = &m->blocks[0].text;
    if (!ek_drop_billing(text) || text->len > 0 || !m->parts) return;
    ek_buf_fini(text); /* an empty part is removed */
    m->n_blocks--;
    memmove(m->blocks, m->blocks + 1, (size_t)m->n_blocks * sizeof *m->blocks);
}

ek_api_usage ek_api_usage_of(const ek_api_reply *r)
{
    ek_api_usage u = {0};
    int per_prompt = r->n_prompts > 1 ? r->n / r->n_prompts : r->n;
    for (int i = 0; i < r->n; i += per_prompt) {
        u.prompt += r->choices[i]->n_prompt;
        u.cached += r->choices[i]->n_cached;
        u.images += r->choices[i]->n_images;
        u.sounds += r->choices[i]->n_sounds;
        u.images_kept += r->choices[i]->n_images_kept;
        u.sounds_kept += r->choices[i]->n_sounds_kept;
    }
    for (int i = 0; i < r->n; i++) {
        u.completion += r->choices[i]->n_tokens;
        u.reasoning += r->choices[i]->n_reasoning;
    }
    return u;
}

void ek_put_media_usage(ek_buf *out, const ek_api_usage *u)
{
    if (u->images > 0)
        ek_buf_fmt(out, ",\"image_tokens\":%lld,\"cached_image_tokens\":%lld", (long long)u->images,
                   (long long)u->images_kept);
    if (u->sounds > 0)
        ek_buf_fmt(out, ",\"audio_tokens\":%lld,\"cached_audio_tokens\":%lld", (long long)u->sounds,
                   (long long)u->sounds_kept);
}

void ek_put_progress(ek_buf *out, const ek_api_progress *p)
{
    ek_buf_fmt(out, "\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,\"time_ms\":%.0f}", p->total,
               p->cached, p->read, p->seconds * 1e3);
}

void ek_put_string(ek_buf *out, const char *s)
{
    if (s) ek_json_quote(out, s, strlen(s));
    else ek_buf_str(out, "null");
}

void ek_put_string_after(ek_buf *out, const char *before, const char *s)
{
    ek_buf_str(out, before);
    ek_put_string(out, s);
}

void ek_put_text_after(ek_buf *out, const char *before, const char *s, size_t n)
{
    ek_buf_str(out, before);
    ek_json_quote(out, s, n);
}

/* Routers give it unchanged to the replica that writes the reply. It has the form of vLLM's connectors; pages are found
 * by their content. */
static void put_transfer(ek_buf *out, const ek_api_reply *r)
{
    ek_buf_str(out, ",\"kv_transfer_params\":{\"do_remote_prefill\":true,\"do_remote_decode\":false,"
                    "\"remote_block_ids\":[],\"remote_engine_id\":\"evenkeel\",\"remote_request_id\":");
    ek_put_string(out, r->id);
    ek_buf_fmt(out, ",\"remote_host\":null,\"remote_port\":null,\"tp_size\":1,\"remote_num_tokens\":%d}",
               r->choices[0]->n_prompt);
}

/* The members of the object, with commas between. */
static void put_own(ek_buf *out, const ek_api_reply *r, bool whole, bool resume)
{
    const char *before = ",\"evenkeel\":{";
    if (whole && r->seed) {
        ek_buf_fmt(out, "%s\"seed\":%llu", before, (unsigned long long)*r->seed);
        before = ",";
    }
    if (whole && r->digest) {
        ek_buf_fmt(out, "%s\"digest\":\"%s\"", before, r->digest);
        before = ",";
    }
    if (whole && r->receipt) {
        ek_buf_fmt(out, "%s\"receipt\":", before);
        ek_buf_str(out, r->receipt);
        before = ",";
    }
    if (whole && r->says_stored) {
        ek_buf_fmt(out, "%s\"reply_cached\":%s", before, r->stored ? "true" : "false");
        before = ",";
    }
    if (resume) {
        ek_buf_str(out, before);
        ek_resume_event_put(r->marks, out, r->choices[0], r->turn->digest ? &r->choices[0]->digest : NULL);
        before = ",";
    }
    if (before[1] == '\0') ek_buf_char(out, '}');
}

static void put_extension(ek_buf *out, const ek_api_reply *r, bool whole, bool resume)
{
    if (whole && r->turn && r->turn->publish) put_transfer(out, r);
    put_own(out, r, whole, resume);
}

void ek_put_extension(ek_buf *out, const ek_api_reply *r)
{
    put_extension(out, r, true, false);
}

void ek_event_begin(const ek_buf *out, const ek_api_reply *r)
{
    if (r->marks) ek_resume_event_begin(r->marks, out);
}

void ek_event_extend(ek_buf *out, const ek_api_reply *r, bool whole)
{
    put_extension(out, r, whole, r->marks != NULL);
}

void ek_event_end(ek_buf *out, const ek_api_reply *r)
{
    if (r->marks) ek_resume_event_end(r->marks, out);
}

/* --- sealed texts --- */

static const char prefix[] = "ek1+";
enum { PREFIX = sizeof prefix - 1 };

void ek_seal(ek_buf *out, const char *text, size_t n)
{
    ek_buf_str(out, prefix);
    ek_base64_encode(out, text, n);
}

bool ek_unseal(ek_buf *out, const char *s, size_t n)
{
    return n >= PREFIX && memcmp(s, prefix, PREFIX) == 0 && (n - PREFIX) % 4 == 0 &&
           ek_base64_decode(out, s + PREFIX, n - PREFIX);
}
