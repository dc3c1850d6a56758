/* GET /tokenizer_info: a tokenizer as tokenizer_config.json describes it, in the form of vLLM's
 * --enable-tokenizer-info-endpoint, which lm-evaluation-harness asks for. */
#include "serve/reply.h"
#include "serve/server_state.h"

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
