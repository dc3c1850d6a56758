#include "chat/prompt.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/wanted.h"
#include "chat/template.h"
#include "model/source.h"

static ek_err open_tokenizer(ek_tokenizer **out, ek_source *from)
{
    ek_source_tokenizer t;
    EK_TRY(ek_source_tokenizer_of(from, &t));
    ek_err err = ek_tokenizer_parse(out, t.json, t.n);
    return err ? ek_fail_in(err, "%s", t.name) : EK_OK;
}

/* Once more, where there is none: drafters have none of their own, and that is the better reason. */
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

void ek_chat_model_close(ek_chat_model *m)
{
    ek_vocab_close(m->vocab);
    if (m->tokenizer) ek_tokenizer_close(m->tokenizer);
    *m = (ek_chat_model){0};
}

/* No text beyond this fits: no token stands for more bytes than the longest. */
static size_t max_text(const ek_chat_model *m, const ek_prompt_opts *opts)
{
    return (size_t)opts->ctx_tokens * m->max_token_bytes;
}

static ek_err render(ek_prompt *out, bool *thinking, const ek_chat_model *m, const ek_conversation *c,
                     const json_t *tools, const ek_prompt_opts *opts)
{
    bool think_mark;
    json_t *messages;
    EK_TRY(ek_template_messages(&messages, c, &think_mark));
    *thinking = opts->thinking == EK_THINKING_UNSET ? think_mark : opts->thinking == EK_THINKING_ON;
    ek_chat_opts o = {.variant = m->variant,
                      .add_generation_prompt = opts->add_generation_prompt,
                      .enable_thinking = *thinking,
                      .preserve_thinking = opts->preserve_thinking,
                      .continue_final = opts->continue_final,
                      .text_arguments = true,
                      .loose_tools = true,
                      .max_bytes = max_text(m, opts)};
    ek_err err = ek_chat_render(out, messages, tools, &o);
    json_decref(messages);
    if (err == EK_ETOOLONG)
        return ek_fail(EK_ETOOLONG, "prompt is too long: %d tokens > %d maximum (counting stopped there)",
                       opts->ctx_tokens, opts->ctx_tokens - 1); /* no text of fewer tokens is as long */
    if (!err && out->n_media > 0) return ek_fail(EK_EUNSUPPORTED, "this model takes text only");
    return err;
}

ek_err ek_turn_prompt_make(ek_turn_prompt *out, const ek_chat_model *m, const ek_conversation *c, const json_t *tools,
                           const ek_prompt_opts *opts)
{
    ek_prompt p = {0};
    size_t ctx = (size_t)opts->ctx_tokens, max = 2 * ctx; /* beyond that nobody needs the exact number */
    ek_err err = render(&p, &out->thinking, m, c, tools, opts);
    if (!err) err = ek_wanted_check();
    if (!err)
        err = ek_encode_max(m->tokenizer, ek_buf_text(&p.text), p.text.len, p.control, p.n_control, max, &out->ids);
    ek_prompt_fini(&p);
    if (err) return err;
    if (out->ids.len < ctx) return EK_OK;
    return ek_fail(EK_ETOOLONG, "prompt is too long: %zu tokens > %zu maximum%s", out->ids.len, ctx - 1,
                   out->ids.len > max ? " (counting stopped there)" : "");
}

void ek_turn_prompt_fini(ek_turn_prompt *p)
{
    ek_ids_fini(&p->ids);
    *p = (ek_turn_prompt){0};
}
