/* POST /v1/chat/completions/render and /v1/completions/render: the tokens of the prompt for the same body without
 * /render, in vLLM's form, for routers that send a conversation to the server that has its prefix cached. */
#include "serve/api/openai.h"

/* Writes the ids without the closing brace. */
static void put_ids(ek_buf *out, const ek_ids *ids)
{
    ek_buf_str(out, "{\"token_ids\":[");
    for (size_t i = 0; i < ids->len; i++) ek_buf_fmt(out, i ? ",%d" : "%d", ids->data[i]);
    ek_buf_char(out, ']');
}

/* Writes for each part of a kind its name, as in events of cached pages (--kv-events), or its position. */
static void put_parts(ek_buf *out, const ek_turn_prompt *p, ek_part_kind kind, bool names)
{
    bool any = false;
    for (int i = 0; i < p->n_parts; i++) {
        const ek_media *m = p->part[i].media;
        if (m->kind != kind) continue;
        ek_buf_str(out, any ? "," : "[");
        any = true;
        if (names) ek_buf_fmt(out, "\"%016llx\"", (unsigned long long)ek_media_name(m));
        else ek_buf_fmt(out, "{\"offset\":%d,\"length\":%d}", p->part[i].first, m->tokens);
    }
    ek_buf_char(out, ']');
}

static void put_kinds(ek_buf *out, const ek_turn_prompt *p, bool names)
{
    static const char *const kinds[] = {
        [EK_PART_IMAGE] = "image", [EK_PART_FRAME] = "video", [EK_PART_SOUND] = "audio"};
    const char *before = "{";
    for (int k = 0; k < EK_PART_KINDS; k++) {
        bool any = false;
        for (int i = 0; i < p->n_parts; i++) any |= (int)p->part[i].media->kind == k;
        if (!any) continue;
        ek_buf_fmt(out, "%s\"%s\":", before, kinds[k]);
        put_parts(out, p, (ek_part_kind)k, names);
        before = ",";
    }
    ek_buf_char(out, '}');
}

static ek_err read_chat(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    return ek_dialect_openai_chat.read(r, body, limits);
}

static ek_err write_one(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    (void)m, (void)r;
    put_ids(out, &prompt->ids);
    if (prompt->n_parts > 0) {
        ek_buf_str(out, ",\"features\":{\"mm_hashes\":");
        put_kinds(out, prompt, true);
        ek_buf_str(out, ",\"mm_placeholders\":");
        put_kinds(out, prompt, false);
        ek_buf_char(out, '}');
    }
    ek_buf_char(out, '}');
    return EK_OK;
}

static ek_err read_completion(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    return ek_dialect_openai_completions.read(r, body, limits);
}

static ek_err make_prompts(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r)
{
    return ek_dialect_openai_completions.prompt(out, m, r);
}

/* Writes one object per prompt. */
static ek_err write_all(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    (void)m;
    ek_buf_char(out, '[');
    put_ids(out, &prompt->ids);
    for (int i = 0; i < r->n_more; i++) {
        ek_buf_str(out, "},");
        put_ids(out, &r->more[i].ids);
    }
    ek_buf_str(out, "}]");
    return EK_OK;
}

const ek_dialect ek_dialect_chat_render = {
    .path = "/v1/chat/completions/render",
    .id_prefix = "",
    .decodes = true,
    .prompt_param = "messages",
    .read = read_chat,
    .answer = write_one,
    .error = ek_openai_error,
};

const ek_dialect ek_dialect_completions_render = {
    .path = "/v1/completions/render",
    .id_prefix = "",
    .prompt_param = "prompt",
    .read = read_completion,
    .prompt = make_prompts,
    .answer = write_all,
    .error = ek_openai_error,
};
