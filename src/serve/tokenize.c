/* POST /v1/tokenize, /v1/detokenize, /v1/chat/completions/render and /v1/completions/render: the tokens of a text, a
 * conversation or a body, in the forms of vLLM's and llama.cpp's servers. */

#include <string.h>

#include "base/alloc.h"
#include "serve/api/field.h"
#include "serve/api/openai.h"
#include "serve/routes.h"
#include "serve/server_state.h"
#include "text/json/json.h"

typedef struct own {
    ek_ids ids; /* detokenize */
    ek_buf text;
    int ctx_tokens;
    bool is_text, bos, pieces, strings;
} own;

static void free_own(void *p)
{
    own *o = p;
    ek_ids_fini(&o->ids);
    ek_buf_fini(&o->text);
    free(o);
}

static own *open_own(ek_api_request *r, const ek_api_limits *limits)
{
    own *o = r->own = ek_alloc(sizeof *o);
    r->free_own = free_own;
    o->ctx_tokens = limits->ctx_tokens;
    return o;
}

/* --- tokenize --- */

static ek_err read_tokenize(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    own *o = open_own(r, limits);
    const json_t *prompt = ek_field(body, "prompt"), *content = ek_field(body, "content");
    const json_t *text = prompt ? prompt : content;
    EK_TRY(ek_members_check(r, body, EK_MEMBERS_TOKENIZE | EK_MEMBERS_CHAT));
    EK_TRY(ek_field_model(r, body));
    EK_TRY(ek_field_bool(r, body, "with_pieces", &o->pieces));
    EK_TRY(ek_field_bool(r, body, "return_token_strs", &o->strings));
    if (!text && ek_field(body, "messages")) return ek_openai_chat_prompt(r, body, limits);
    if (!ek_json_is_text(text)) return ek_field_wrong(r, "prompt", "a text is needed: prompt, content, or messages");
    o->is_text = true;
    ek_buf_add(&o->text, json_string_value(text), json_string_length(text));
    o->bos = prompt != NULL; /* as vLLM, which calls it prompt; as llama.cpp, which calls it content */
    EK_TRY(ek_field_bool(r, body, "add_special", &o->bos));
    return ek_field_bool(r, body, "add_special_tokens", &o->bos);
}

static ek_err encode(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r)
{
    const own *o = r->own;
    if (!o->is_text) return ek_turn_prompt_make(out, m, &r->conversation, r->tools, &r->prompt);
    return ek_openai_encode(&out->ids, m, ek_buf_text(&o->text), o->text.len, o->bos, (size_t)-1 >> 1);
}

static void put_piece(ek_buf *out, const ek_tokenizer *t, int32_t id)
{
    size_t n;
    const char *s = ek_tokenizer_bytes(t, id, &n);
    ek_json_quote(out, s, n);
}

enum { ESCAPED = 6, AROUND = 32 }; /* bytes that one byte of text becomes at most; of members around a token */

static size_t bytes_of_tokens(const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    const own *o = r->own;
    const ek_ids *ids = &prompt->ids;
    size_t texts = 0;
    for (size_t i = 0; (o->pieces || o->strings) && i < ids->len; i++) {
        size_t n;
        ek_tokenizer_bytes(m->tokenizer, ids->data[i], &n);
        texts += n;
    }
    return 256 + ids->len * AROUND + ESCAPED * texts * (size_t)(o->pieces + o->strings);
}

static ek_err write_tokens(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    const own *o = r->own;
    const ek_ids *ids = &prompt->ids;
    ek_buf_fmt(out, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", ids->len, o->ctx_tokens);
    for (size_t i = 0; i < ids->len; i++) {
        if (i > 0) ek_buf_char(out, ',');
        if (!o->pieces) {
            ek_buf_fmt(out, "%d", ids->data[i]);
            continue;
        }
        ek_buf_fmt(out, "{\"id\":%d,\"piece\":", ids->data[i]);
        put_piece(out, m->tokenizer, ids->data[i]);
        ek_buf_char(out, '}');
    }
    ek_buf_str(out, o->strings ? "],\"token_strs\":[" : "],\"token_strs\":null");
    for (size_t i = 0; o->strings && i < ids->len; i++) {
        if (i > 0) ek_buf_char(out, ',');
        put_piece(out, m->tokenizer, ids->data[i]);
    }
    ek_buf_str(out, o->strings ? "]}" : "}");
    return EK_OK;
}

/* --- detokenize --- */

static ek_err read_detokenize(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    own *o = open_own(r, limits);
    const json_t *tokens = ek_field(body, "tokens");
    EK_TRY(ek_members_check(r, body, EK_MEMBERS_TOKENIZE | EK_MEMBERS_CHAT));
    EK_TRY(ek_field_model(r, body));
    if (!json_is_array(tokens)) return ek_field_wrong(r, "tokens", "a list of tokens is needed");
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *v = json_array_get(tokens, i);
        int64_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id >= limits->n_vocab) {
            r->param = "tokens";
            return ek_fail(EK_EINVAL, "tokens: they are whole numbers from 0 to %d", limits->n_vocab - 1);
        }
        ek_ids_add(&o->ids, (int32_t)id);
    }
    return EK_OK;
}

static size_t bytes_of_text(const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    const own *o = r->own;
    size_t text = 0, n;
    (void)prompt;
    for (size_t i = 0; i < o->ids.len; i++, text += n) ek_tokenizer_bytes(m->tokenizer, o->ids.data[i], &n);
    return 256 + (2 * ESCAPED + 1) * text; /* twice in the reply, and once on the way */
}

static ek_err write_text(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    const own *o = r->own;
    ek_buf text = {0};
    (void)prompt;
    ek_decode(m->tokenizer, o->ids.data, o->ids.len, false, &text);
    ek_put_text_after(out, "{\"prompt\":", ek_buf_text(&text), text.len);
    ek_put_text_after(out, ",\"content\":", ek_buf_text(&text), text.len);
    ek_buf_char(out, '}');
    ek_buf_fini(&text);
    return EK_OK;
}

const ek_dialect ek_dialect_tokenize = {
    .path = "/v1/tokenize",
    .id_prefix = "",
    .prompt_param = "prompt",
    .read = read_tokenize,
    .prompt = encode,
    .answer = write_tokens,
    .answer_bytes = bytes_of_tokens,
    .error = ek_openai_error,
};

const ek_dialect ek_dialect_detokenize = {
    .path = "/v1/detokenize",
    .id_prefix = "",
    .prompt_param = "tokens",
    .read = read_detokenize,
    .prompt = ek_api_no_prompt,
    .answer = write_text,
    .answer_bytes = bytes_of_text,
    .error = ek_openai_error,
};

/* --- render: the tokens of the prompt for the same body without /render, in vLLM's form, for routers that send a
 * conversation to the server that has its prefix cached --- */

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

/* --- /tokenizer_info --- */

/* A tokenizer as tokenizer_config.json describes it, in the form of vLLM's
 * --enable-tokenizer-info-endpoint, which lm-evaluation-harness asks for. */

/* Members of tokenizer_config.json, and the tokens of Gemma 4 that they name. */
static const struct {
    const char *member, *text;
} names[] = {
    {"bos_token", "<bos>"},       {"eos_token", "<eos>"},    {"pad_token", "<pad>"},    {"unk_token", "<unk>"},
    {"mask_token", "<mask>"},     {"sot_token", "<|turn>"},  {"eot_token", "<turn|>"},  {"boi_token", "<|image>"},
    {"image_token", "<|image|>"}, {"eoi_token", "<image|>"}, {"boa_token", "<|audio>"}, {"audio_token", "<|audio|>"},
    {"eoa_token", "<audio|>"},
};
enum { N_NAMES = sizeof names / sizeof *names };

void ek_tokenizer_info_reply(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    const ek_tokenizer *t = s->chat->tokenizer;
    ek_buf b = {0}, added = {0};
    ek_buf_str(&b, "{\"tokenizer_class\":\"GemmaTokenizer\"");
    for (int i = 0; i < N_NAMES; i++) {
        const int32_t id = ek_tokenizer_id(t, names[i].text);
        if (id < 0) continue;
        ek_buf_fmt(&b, ",\"%s\":\"%s\"", names[i].member, names[i].text);
        ek_buf_fmt(&added,
                   "%s\"%d\":{\"content\":\"%s\",\"lstrip\":false,\"normalized\":false,\"rstrip\":false,"
                   "\"single_word\":false,\"special\":%s}",
                   added.len ? "," : "", (int)id, names[i].text, ek_tokenizer_is_special(t, id) ? "true" : "false");
    }
    ek_buf_fmt(&b,
               ",\"add_bos_token\":true,\"add_eos_token\":false,\"clean_up_tokenization_spaces\":false,"
               "\"padding_side\":\"left\",\"model_max_length\":%d,\"vocab_size\":%d,\"chat_template\":null,"
               "\"added_tokens_decoder\":{%s}}",
               ek_engine_ctx(s->engine), ek_tokenizer_size(t), ek_buf_text(&added));
    ek_reply_json(x, 200, &b);
    ek_buf_fini(&added);
}
