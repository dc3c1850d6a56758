/* POST /v1/chat/completions/render and /v1/completions/render: the tokens of the prompt that the same body would have
 * without /render, in the shapes of vLLM, for routers that send a conversation where its prefix is cached. */
#include "serve/api/openai_reply.h"

static void put_ids(ek_buf *out, const ek_ids *ids)
{
    ek_buf_str(out, "{\"token_ids\":[");
    for (size_t i = 0; i < ids->len; i++) ek_buf_fmt(out, i ? ",%d" : "%d", ids->data[i]);
    ek_buf_str(out, "]}");
}

static ek_err parse_chat(ek_api_request *r, const char *body, size_t n, const ek_api_limits *limits)
{
    return ek_dialect_openai_chat.parse(r, body, n, limits);
}

static ek_err write_one(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    (void)m, (void)r;
    put_ids(out, &prompt->ids);
    return EK_OK;
}

static ek_err parse_completion(ek_api_request *r, const char *body, size_t n, const ek_api_limits *limits)
{
    return ek_dialect_openai_completions.parse(r, body, n, limits);
}

static ek_err make_prompts(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r)
{
    return ek_dialect_openai_completions.prompt(out, m, r);
}

/* One object per prompt. */
static ek_err write_all(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    (void)m;
    ek_buf_char(out, '[');
    put_ids(out, &prompt->ids);
    for (int i = 0; i < r->n_more; i++) {
        ek_buf_char(out, ',');
        put_ids(out, &r->more[i].ids);
    }
    ek_buf_char(out, ']');
    return EK_OK;
}

const ek_dialect ek_dialect_chat_render = {
    .path = "/v1/chat/completions/render",
    .id_prefix = "",
    .prompt_param = "messages",
    .parse = parse_chat,
    .answer = write_one,
    .error = ek_openai_error,
};

const ek_dialect ek_dialect_completions_render = {
    .path = "/v1/completions/render",
    .id_prefix = "",
    .prompt_param = "prompt",
    .parse = parse_completion,
    .prompt = make_prompts,
    .answer = write_all,
    .error = ek_openai_error,
};
