#include "chat/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/hash.h"
#include "chat/order.h"
#include "model/source/source.h"

static ek_err open_tokenizer(ek_tokenizer **out, ek_source *from)
{
    ek_source_tokenizer t;
    EK_TRY(ek_source_tokenizer_of(from, &t));
    ek_err err = ek_tokenizer_parse(out, t.json, t.n);
    return err ? ek_fail_in(err, "%s", t.name) : EK_OK;
}

/* For ENOTFOUND. A drafter has no tokenizer, so the reason of its refusal is better. Otherwise tries again. */
static ek_err open_again(ek_tokenizer **out, ek_source *from, const char *path)
{
    ek_config *c = ek_alloc(sizeof *c);
    ek_err err = ek_source_config(from, c) ? EK_OK : ek_source_check_model(path, c);
    free(c);
    return err ? err : open_tokenizer(out, from);
}

ek_err ek_chat_tokenizer_open(ek_tokenizer **out, const char *path)
{
    ek_source *source;
    EK_TRY(ek_source_open(&source, path));
    ek_err err = open_tokenizer(out, source);
    if (err == EK_ENOTFOUND) err = open_again(out, source, path);
    ek_source_close(source);
    return err;
}

ek_err ek_chat_variant_open(ek_chat_variant *out, const char *path)
{
    ek_source *source;
    ek_source_chat chat;
    EK_TRY(ek_source_open(&source, path));
    ek_err err = ek_source_chat_of(source, &chat);
    if (!err && chat.dir) err = ek_chat_variant_of(out, chat.dir);
    else if (!err) *out = ek_chat_variant_of_text(chat.name, chat.text, chat.n, chat.small);
    if (!err && chat.dir) ek_chat_note_folder(chat.dir);
    ek_source_close(source);
    return err;
}

ek_err ek_chat_model_open(ek_chat_model *m, const char *path)
{
    *m = (ek_chat_model){0};
    EK_TRY(ek_chat_tokenizer_open(&m->tokenizer, path));
    ek_marks_find(&m->marks, m->tokenizer);
    for (int32_t id = 0; id < ek_tokenizer_size(m->tokenizer); id++) {
        size_t n;
        ek_tokenizer_bytes(m->tokenizer, id, &n);
        if (n > m->max_token_bytes) m->max_token_bytes = n;
    }
    m->vocab = ek_vocab_open(m->tokenizer);
    return ek_chat_variant_open(&m->variant, path);
}

static void add_vocabulary(ek_sha256_state *s, const ek_tokenizer *t)
{
    for (int32_t id = 0; id < ek_tokenizer_size(t); id++) {
        size_t n;
        const char *bytes = ek_tokenizer_bytes(t, id, &n);
        ek_sha256_add_u64(s, 2 * (uint64_t)n + ek_tokenizer_is_special(t, id));
        if (n) ek_sha256_add(s, bytes, n);
    }
}

static void end_name(char out[EK_CHAT_NAME], ek_sha256_state *s)
{
    char hex[65];
    ek_sha256_end(s, hex);
    memcpy(out, hex, EK_CHAT_NAME - 1);
    out[EK_CHAT_NAME - 1] = '\0';
}

void ek_chat_vocabulary_name(char out[EK_CHAT_NAME], const ek_tokenizer *t)
{
    ek_sha256_state s;
    ek_sha256_init(&s);
    add_vocabulary(&s, t);
    end_name(out, &s);
}

void ek_chat_model_name(char out[EK_CHAT_NAME], const ek_chat_model *m, const int32_t *stop, int n_stop)
{
    ek_sha256_state s;
    ek_sha256_init(&s);
    ek_sha256_add_u64(&s, (uint64_t)m->variant);
    ek_sha256_add_u64(&s, (uint64_t)n_stop);
    for (int i = 0; i < n_stop; i++) ek_sha256_add_u64(&s, (uint64_t)stop[i]);
    add_vocabulary(&s, m->tokenizer);
    end_name(out, &s);
}

void ek_chat_model_close(ek_chat_model *m)
{
    ek_vocab_close(m->vocab);
    if (m->tokenizer) ek_tokenizer_close(m->tokenizer);
    *m = (ek_chat_model){0};
}

size_t ek_prompt_max_text(const ek_chat_model *m, const ek_prompt_opts *opts)
{
    return (size_t)opts->ctx_tokens * m->max_token_bytes;
}

enum {
    RENDERED = 3,        /* bytes per byte of text: the rendered text, twice while it grows */
    COUNTING = 16 << 20, /* bytes that counting needs; pieces of SMALL_PIECE bytes need very little */
    SMALL_PIECE = 4 << 10,
    SAMPLE = 256 << 10 /* bytes on which an estimate is based */
};

/* --- a prompt that does not fit --- */

static bool is_time_up(void *arg)
{
    const double *until = arg;
    return ek_thread_time() > *until;
}

static ek_err too_long(size_t n, int ctx_tokens, bool exact)
{
    size_t ctx = (size_t)ctx_tokens;
    if (exact && n < ctx) return EK_OK;
    return ek_fail(EK_ETOOLONG, "prompt is too long: %zu tokens > %zu maximum%s", n < ctx ? ctx : n, ctx - 1,
                   exact ? "" : " (the first number is an estimate)");
}

/* The part of n for `bytes` bytes, if n is the number for count->bytes. */
static size_t scaled(const ek_count *count, size_t bytes)
{
    return count->bytes ? (size_t)((double)count->ids * (double)bytes / (double)count->bytes) : bytes / 4;
}

static ek_err may_take(const ek_prompt_opts *opts, size_t bytes)
{
    return opts->room ? opts->room(opts->room_arg, bytes) : EK_OK;
}

ek_err ek_prompt_too_long(const ek_chat_model *m, const char *text, size_t n, const size_t *control, size_t n_control,
                          size_t before, const ek_prompt_opts *opts)
{
    static const double MAX_SECONDS = 1;
    double until = ek_thread_time() + MAX_SECONDS;
    ek_count count = {.stop = is_time_up, .arg = &until};
    if (may_take(opts, COUNTING)) count.piece = SMALL_PIECE;
    ek_encode_count(m->tokenizer, text, n, control, n_control, &count);
    return too_long(before + (count.bytes < n ? scaled(&count, n) : count.ids), opts->ctx_tokens, count.exact);
}

/* Estimates the number of tokens from the beginning of the text, in p, and from the length of the template's input. */
static ek_err estimate(const ek_chat_model *m, const ek_prompt *p, size_t bytes, int ctx_tokens)
{
    ek_count count = {.piece = SMALL_PIECE};
    size_t n = p->text.len < SAMPLE ? p->text.len : SAMPLE;
    ek_encode_count(m->tokenizer, ek_buf_text(&p->text), n, p->control, p->n_control, &count);
    return too_long(scaled(&count, bytes > p->text.len ? bytes : p->text.len), ctx_tokens, false);
}

/* --- prompts --- */

/* max_bytes: the limit of the text; 0: none. ETOOLONG for a longer text. */
static ek_err render(ek_prompt *out, const ek_chat_model *m, const json_t *messages, const json_t *tools, bool thinking,
                     const ek_prompt_opts *opts, size_t max_bytes)
{
    ek_chat_opts o = {.variant = m->variant,
                      .add_generation_prompt = opts->add_generation_prompt,
                      .enable_thinking = thinking,
                      .preserve_thinking = opts->preserve_thinking,
                      .continue_final = opts->continue_final,
                      .text_arguments = true,
                      .loose_tools = true,
                      .max_bytes = max_bytes};
    return ek_chat_render(out, messages, tools, &o);
}

/* Counts the tokens of a whole prompt, or estimates their number. p holds a beginning of its text that does not fit. */
static ek_err count_all(ek_prompt *p, const ek_chat_model *m, json_t *messages, const json_t *tools, bool thinking,
                        size_t bytes, const ek_prompt_opts *opts)
{
    if (may_take(opts, RENDERED * bytes)) {
        json_decref(messages);
        return estimate(m, p, bytes, opts->ctx_tokens);
    }
    ek_prompt_fini(p);
    ek_err err = render(p, m, messages, tools, thinking, opts, 0);
    json_decref(messages);
    return err ? err : ek_prompt_too_long(m, ek_buf_text(&p->text), p->text.len, p->control, p->n_control, 0, opts);
}

/* Encodes p. The number of tokens is known if it is at most max, at which encoding stops. more: further tokens of the
 * prompt. */
static ek_err encode(ek_turn_prompt *out, const ek_chat_model *m, const ek_prompt *p, size_t more,
                     const ek_prompt_opts *opts)
{
    size_t ctx = (size_t)opts->ctx_tokens, max = 2 * ctx;
    EK_TRY(ek_encode_max(m->tokenizer, ek_buf_text(&p->text), p->text.len, p->control, p->n_control, max, &out->ids));
    if (out->ids.len + more < ctx) return EK_OK;
    if (out->ids.len <= max) return too_long(out->ids.len + more, opts->ctx_tokens, true);
    return ek_prompt_too_long(m, ek_buf_text(&p->text), p->text.len, p->control, p->n_control, more, opts);
}

/* Decodes pictures and sounds one after the other, because the memory counted during decoding is larger than
 * afterwards. */
static ek_err decode(ek_turn_prompt *out, const ek_chat_model *m, const ek_runs *runs, const int *first,
                     const ek_prompt_opts *opts)
{
    out->part = ek_alloc((size_t)(runs->n + 1) * sizeof *out->part);
    for (int i = 0; i < runs->n; i++) {
        size_t memory = runs->at[i].memory;
        EK_TRY(ek_wanted_check());
        out->refused = 1 + (int)runs->at[i].kind;
        EK_TRY(may_take(opts, memory));
        EK_TRY(ek_run_decode(&out->part[i].media, runs, i, &m->media));
        out->part[i].first = first[i];
        out->n_parts = i + 1;
        out->refused = 0;
        size_t kept = ek_media_memory(out->part[i].media);
        if (opts->give && memory > kept) opts->give(opts->room_arg, memory - kept);
    }
    return EK_OK;
}

static ek_err encode_all(ek_turn_prompt *out, const ek_chat_model *m, const ek_prompt *p, const ek_conversation *c,
                         const ek_prompt_opts *opts)
{
    ek_runs runs = {0};
    const ek_run_budgets budgets = {opts->image_tokens      ? opts->image_tokens
                                    : m->media.image_tokens ? m->media.image_tokens
                                                            : EK_BUDGET_IMAGE,
                                    m->media.frame_tokens ? m->media.frame_tokens : EK_BUDGET_FRAME, opts->alpha};
    ek_err err = ek_runs_find(&runs, c, p->media, p->n_media, &m->media, &budgets);
    if (err && runs.n > 0) out->refused = 1 + (int)runs.at[runs.n - 1].kind;
    int *first = ek_alloc((size_t)(runs.n + 1) * sizeof *first);
    if (!err) err = encode(out, m, p, (size_t)runs.more, opts);
    if (!err) err = ek_runs_expand(&out->ids, first, &runs, &m->media.ids);
    if (!err) {
        out->n_image_tokens = runs.n_image_tokens;
        out->n_sound_tokens = runs.n_sound_tokens;
    }
    if (!err && runs.n > 0 && !opts->headers) err = decode(out, m, &runs, first, opts);
    free(first);
    ek_runs_fini(&runs);
    return err;
}

ek_err ek_turn_prompt_make(ek_turn_prompt *out, const ek_chat_model *m, const ek_conversation *c, const json_t *tools,
                           const ek_prompt_opts *opts)
{
    ek_prompt p = {0};
    bool think_mark;
    json_t *messages;
    EK_TRY(ek_template_messages(&messages, c, &think_mark));
    out->thinking = opts->thinking == EK_THINKING_UNSET ? think_mark : opts->thinking == EK_THINKING_ON;
    ek_err err = render(&p, m, messages, tools, out->thinking, opts, ek_prompt_max_text(m, opts));
    if (err == EK_ETOOLONG) {
        err = count_all(&p, m, messages, tools, out->thinking, ek_conversation_bytes(c, tools), opts);
    } else {
        json_decref(messages); /* before encoding takes memory */
        if (!err) err = ek_wanted_check();
        if (!err) err = encode_all(out, m, &p, c, opts);
    }
    ek_prompt_fini(&p);
    return err;
}

void ek_turn_prompt_fini(ek_turn_prompt *p)
{
    ek_ids_fini(&p->ids);
    for (int i = 0; i < p->n_parts; i++) ek_media_release(p->part[i].media);
    free(p->part);
    *p = (ek_turn_prompt){0};
}

size_t ek_turn_prompt_media(const ek_turn_prompt *p)
{
    size_t n = 0;
    for (int i = 0; i < p->n_parts; i++) n += ek_media_memory(p->part[i].media);
    return n;
}
