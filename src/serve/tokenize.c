/* POST /v1/tokenize and /v1/detokenize: the tokens of a text or a conversation, in the forms of vLLM's and llama.cpp's
 * servers. */

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
    ek_buf_str(out, "{\"prompt\":");
    ek_json_quote(out, ek_buf_text(&text), text.len);
    ek_buf_str(out, ",\"content\":");
    ek_json_quote(out, ek_buf_text(&text), text.len);
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

void ek_tokenizer_info_reply(ek_server *s, ek_exchange *x)
{
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
    ek_buf_fini(&b);
    ek_buf_fini(&added);
}
