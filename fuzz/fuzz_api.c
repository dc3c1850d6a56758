/* Bodies of the APIs beside chat completions; the first byte chooses one. Any body gives a request within its
 * documented bounds, whose conversation renders or is refused, or an error of the client with a sentence of one line
 * and, but for what is no JSON object, a field that is named. Read twice it gives the same. */
#include <math.h>
#include <string.h>

#include "chat/order.h"
#include "serve/api/dialect.h"
#include "serve/api/model_card.h"
#include "serve/store/conversations.h"
#include "text/json/json.h"
#include "text/utf8.h"

enum { VOCAB = 262144 };

static const ek_dialect *const dialects[] = {
    &ek_dialect_anthropic,   &ek_dialect_anthropic_count, &ek_dialect_responses,     &ek_dialect_openai_completions,
    &ek_dialect_tokenize,    &ek_dialect_detokenize,      &ek_dialect_ollama_chat,   &ek_dialect_ollama_generate,
    &ek_dialect_ollama_show, &ek_dialect_ollama_pull,     &ek_dialect_conversations,
};

static void check(const ek_api_request *r, bool generates)
{
    const ek_turn_opts *t = &r->turn;
    const ek_sampling *s = &t->sampling;
    bool ok = t->n_stop >= 0 && t->n_stop <= EK_STOP_MAX && t->max_tokens >= 0 && t->n_top >= 0 &&
              t->n_top <= EK_LOGPROBS_MAX;
    ok &= !generates || (r->n >= 1 && r->n <= 64 && r->n % (1 + r->n_more) == 0);
    ok &= s->temperature >= 0 && s->temperature <= 100 && s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 &&
          s->min_p <= 1 && s->top_k >= 0;
    ok &= isfinite(s->presence_penalty) && isfinite(s->frequency_penalty);
    ok &= !t->tools_active || json_array_size(r->tools) >= 1;
    for (int i = 0; i < s->n_bias; i++)
        ok &= s->bias[i].token >= 0 && s->bias[i].token < VOCAB && !isnan(s->bias[i].bias);
    for (int i = 0; i < t->n_stop; i++) ok &= t->stop_len[i] >= 1 && t->stop_len[i] <= EK_STOP_BYTES;
    for (size_t i = 0; i < r->resume.tokens.len; i++)
        ok &= r->resume.on && r->resume.tokens.data[i] >= 0 && r->resume.tokens.data[i] < VOCAB;
    if (!ok) __builtin_trap();
}

/* The text of the prompt; a conversation that the template refuses gives an error of one line. */
static ek_buf render(const ek_api_request *r)
{
    bool mark;
    ek_prompt p = {0};
    ek_buf text = {0};
    ek_chat_opts o = {.variant = EK_CHAT_LARGE,
                      .text_arguments = true,
                      .add_generation_prompt = r->prompt.add_generation_prompt,
                      .continue_final = r->prompt.continue_final};
    json_t *messages;
    ek_err err = ek_template_messages(&messages, &r->conversation, &mark);
    if (!err) err = ek_chat_render(&p, messages, r->declared ? r->declared : r->tools, &o);
    if (!err && !ek_utf8_valid(ek_buf_text(&p.text), p.text.len)) __builtin_trap();
    if (!err) ek_buf_add(&text, ek_buf_text(&p.text), p.text.len);
    if (err && (err != EK_EINVAL || strchr(ek_err_text(), '\n'))) __builtin_trap();
    ek_prompt_fini(&p);
    json_decref(messages);
    return text;
}

static const ek_config config = {.hidden_size = 1, .n_layers = 1};
static const ek_model_card card = {
    .name = (char[]){"model"}, .format = "gguf", .weights = (char[]){"bf16"}, .config = &config};

static ek_response_store *store;

static const ek_chat_media media = {.image = true, .audio = true};

/* What needs no prompt and no model is said in JSON. */
static void check_answer(const ek_dialect *d, ek_api_request *r)
{
    const ek_turn_prompt none = {0};
    ek_turn_prompt made = {0};
    ek_buf text = {0};
    json_t *v = NULL;
    if (d->prompt(&made, NULL, r) || made.ids.len > 0) __builtin_trap();
    if (d->answer(&text, NULL, r, &none) || ek_json_read(&v, ek_buf_text(&text), text.len, 0)) __builtin_trap();
    json_decref(v);
    ek_buf_fini(&text);
}

/* Items that were taken are a conversation's, each with an id of its own; or there is no room for them. */
static void check_conversation(ek_api_request *r)
{
    ek_buf text = {0};
    json_t *v = NULL;
    const ek_err err = ek_dialect_conversations.answer(&text, NULL, r, NULL);
    if (err && err != EK_ETOOLARGE && err != EK_ENOMEM) __builtin_trap();
    if (!err && ek_json_read(&v, ek_buf_text(&text), text.len, 0)) __builtin_trap();
    if (!err) {
        const char *id = ek_json_get_text(v, "id", NULL);
        ek_buf page = {0};
        json_t *list;
        const ek_item_page all = {.after = "", .limit = 100, .oldest_first = true};
        if (!id || ek_conversation_put_page(&page, store, 0, id, &all)) __builtin_trap();
        if (ek_json_read(&list, ek_buf_text(&page), page.len, 0)) __builtin_trap();
        json_t *seen = json_object(), *items = json_object_get(list, "data");
        for (size_t i = 0; i < json_array_size(items); i++) {
            const char *item = ek_json_get_text(json_array_get(items, i), "id", NULL);
            if (!item || json_object_get(seen, item)) __builtin_trap();
            json_object_set_new(seen, item, json_true());
            ek_buf_clear(&page);
            if (ek_conversation_put_item(&page, store, 0, id, item)) __builtin_trap();
        }
        json_decref(seen);
        json_decref(list);
        ek_buf_fini(&page);
        if (ek_conversation_delete(store, 0, id)) __builtin_trap();
    }
    json_decref(v);
    ek_buf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    if (!store) { /* a response that bodies may continue */
        ek_stored_response kept = {.id = "r"};
        store = ek_response_store_open(4, 4096);
        ek_buf_str(&kept.input, "[{\"id\":\"msg_1\",\"role\":\"user\",\"content\":\"a\"}]");
        ek_buf_str(&kept.response, "[{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"b\"}]");
        kept.n = kept.response.len;
        const ek_stored_item where = {.from = 1, .n = kept.input.len - 2}; /* one that bodies may refer to */
        ek_response_store_note(store, 0, &kept.items, "msg_1", 5, where);
        ek_response_store_put(store, 0, &kept);
    }
    const ek_dialect *d = dialects[(uint8_t)(data[0] - '0') % (sizeof dialects / sizeof *dialects)];
    ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 0.95f, .top_k = 64, .repetition_penalty = 1},
                            .n_vocab = VOCAB,
                            .ctx_tokens = 8192,
                            .media = &media,
                            .card = &card,
                            .responses = store};
    ek_buf texts[2] = {{0}};
    for (int again = 0; again < 2; again++) {
        ek_api_request r = {0};
        ek_err err = ek_api_parse(&r, d, (const char *)data + 1, n - 1, &limits);
        int status = ek_err_http(err);
        if (!err) {
            check(&r, d->begin != NULL);
            if (d == &ek_dialect_conversations) check_conversation(&r);
            bool described = d == &ek_dialect_ollama_show || d == &ek_dialect_ollama_pull;
            if (described || (d->end && r.answered && r.conversation.n_messages == 0 && !r.turn.plain))
                check_answer(d, &r);
            if (r.conversation.n_messages) texts[again] = render(&r);
        } else if ((status != 400 && status != 404) || !*ek_err_text() || strchr(ek_err_text(), '\n')) {
            __builtin_trap();
        } else if (err != EK_EPARSE && !r.param && !strstr(ek_err_text(), "JSON object")) {
            __builtin_trap();
        }
        ek_api_request_fini(&r);
    }
    if (texts[0].len != texts[1].len || (texts[0].len && memcmp(texts[0].data, texts[1].data, texts[0].len)))
        __builtin_trap();
    ek_buf_fini(&texts[0]);
    ek_buf_fini(&texts[1]);
    return 0;
}
