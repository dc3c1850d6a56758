/* Bodies of Ollama's API: what they mean, that they mean what the same body in OpenAI's words means, and what is
 * refused. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "chat/order.h"
#include "serve/api/dialect.h"
#include "serve/api/model_card.h"
#include "template_gets.h"
#include "text/json/json.h"

#define CHAT     &ek_dialect_ollama_chat
#define GENERATE &ek_dialect_ollama_generate
#define USER     "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOL \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}"

static const ek_config config = {.hidden_size = 64, .n_layers = 2, .n_heads = 4, .vocab_size = 1000};
static const ek_model_card card = {.name = (char[]){"org/keel-E2B"},
                                   .format = "safetensors",
                                   .weights = (char[]){"q4.64"},
                                   .digest = "0123",
                                   .size = 5000000000,
                                   .modified = 1700000000,
                                   .parameters = 5123000000,
                                   .ctx_tokens = 512,
                                   .config = &config};

static ek_err parse(const ek_dialect *d, ek_api_request *r, const char *body)
{
    ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 0.95f, .top_k = 64, .repetition_penalty = 1},
                            .n_vocab = 1000,
                            .ctx_tokens = 512,
                            .now = 1700000001,
                            .card = &card};
    *r = (ek_api_request){0};
    return ek_api_parse(r, d, body, strlen(body), &limits);
}

static void taken(const ek_dialect *d, ek_api_request *r, const char *body)
{
    ek_err err = parse(d, r, body);
    if (err) fail_msg("%s: %s", body, ek_err_text());
}

static void fields(void **state)
{
    (void)state;
    ek_api_request r;
    taken(
        CHAT, &r,
        "{" USER ",\"model\":\"gemma4:latest\",\"tools\":[" TOOL "],\"think\":\"high\",\"keep_alive\":\"1h30m\","
        "\"truncate\":true,\"shift\":false,\"evenkeel\":{\"digest\":true},\"logprobs\":true,\"top_logprobs\":3,\"options\":{"
        "\"temperature\":0.5,\"top_k\":7,\"top_p\":0.25,\"min_p\":0.125,\"seed\":9,\"num_predict\":12,\"stop\":[\"a\",\"\"],"
        "\"repeat_penalty\":1.5,\"presence_penalty\":0.5,\"frequency_penalty\":-0.5,\"num_ctx\":4096,\"num_gpu\":-1,"
        "\"use_mmap\":true,\"mirostat\":0,\"typical_p\":1,\"tfs_z\":1.0,\"repeat_last_n\":-1,\"unknown\":[]}}");
    const ek_sampling *s = &r.turn.sampling;
    assert_string_equal(r.model, "gemma4:latest");
    assert_true(r.stream && r.turn.tools_active && r.turn.digest && r.turn.logprobs && !r.answered);
    assert_int_equal(r.turn.n_top, 3);
    assert_true(s->temperature == 0.5f && s->top_k == 7 && s->top_p == 0.25f && s->min_p == 0.125f);
    assert_true(r.has_seed && s->seed == 9 && r.turn.max_tokens == 12 && r.turn.n_stop == 1);
    assert_true(s->repetition_penalty == 1.5f && s->presence_penalty == 0.5f && s->frequency_penalty == -0.5f);
    assert_int_equal(r.prompt.thinking, EK_THINKING_ON);
    assert_true(r.prompt.add_generation_prompt && !r.prompt.continue_final);
    ek_api_request_fini(&r);

    /* What is left out or says nothing. */
    taken(
        CHAT, &r,
        "{" USER
        ",\"model\":\"m\",\"options\":{\"seed\":-1,\"num_predict\":-2},\"think\":null,\"format\":\"\",\"stream\":false}");
    assert_true(!r.stream && !r.has_seed && r.turn.max_tokens == INT_MAX && r.turn.sampling.top_k == 64);
    assert_int_equal(r.prompt.thinking, EK_THINKING_UNSET);
    assert_int_equal(r.form.text, EK_TEXT_FREE);
    ek_api_request_fini(&r);
    taken(
        CHAT, &r,
        "{" USER
        ",\"model\":\"m\",\"think\":false,\"format\":\"json\",\"options\":{\"repeat_penalty\":1.1,\"repeat_last_n\":0}}");
    assert_int_equal(r.prompt.thinking, EK_THINKING_OFF);
    assert_int_equal(r.form.text, EK_TEXT_JSON_OBJECT);
    assert_true(r.turn.sampling.repetition_penalty == 1);
    ek_api_request_fini(&r);
    taken(
        GENERATE, &r,
        "{\"name\":\"m\",\"prompt\":\"x\",\"format\":{\"type\":\"object\"},\"images\":[],\"context\":[],\"suffix\":\"\",\"template\":\"\"}");
    assert_int_equal(r.form.text, EK_TEXT_JSON_SCHEMA);
    assert_true(r.form.lenient && r.schema && r.stream && !r.turn.plain);
    assert_string_equal(r.model, "m");
    template_gets(&r, "[{\"role\":\"user\",\"content\":\"x\"}]");
    taken(GENERATE, &r, "{\"model\":\"m\",\"prompt\":\"x\",\"system\":\"s\"}");
    template_gets(&r, "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"x\"}]");
    taken(GENERATE, &r, "{\"model\":\"m\",\"prompt\":\"x\",\"raw\":true}");
    assert_true(r.turn.plain && r.conversation.n_messages == 0);
    ek_api_request_fini(&r);
}

/* The text of the prompt. */
static ek_buf rendered(ek_api_request *r)
{
    ek_buf got = {0};
    ek_prompt p = {0};
    ek_chat_opts o = {.variant = EK_CHAT_LARGE, .add_generation_prompt = r->prompt.add_generation_prompt};
    bool mark;
    json_t *v;
    if (ek_template_messages(&v, &r->conversation, &mark) || ek_chat_render(&p, v, r->tools, &o))
        fail_msg("%s", ek_err_text());
    ek_buf_add(&got, ek_buf_text(&p.text), p.text.len);
    ek_prompt_fini(&p);
    json_decref(v);
    ek_api_request_fini(r);
    return got;
}

/* One conversation in both APIs' words is one prompt. */
static void as_openai(void **state)
{
    (void)state;
    static const struct {
        const char *ollama, *openai;
    } cases[] = {
        {USER, USER},
        {"\"messages\":[{\"role\":\"System\",\"content\":\"s\"},{\"role\":\"USER\",\"content\":\"hi\",\"images\":[]}]",
         "\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"hi\"}]"},
        {/* ids are new in Ollama's API: a result names its tool */
         "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"t\","
         "\"tool_calls\":[{\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"a\":1}}},{\"function\":{\"name\":\"g\",\"arguments\":{}}}]},"
         "{\"role\":\"tool\",\"tool_name\":\"g\",\"content\":\"q\"},{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"r\"}]",
         "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"t\","
         "\"tool_calls\":[{\"id\":\"x\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}},"
         "{\"id\":\"y\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},"
         "{\"role\":\"tool\",\"tool_call_id\":\"y\",\"content\":\"q\"},{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"r\"}]"},
        {/* by ids, in another order; a text of arguments */
         "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
         "\"arguments\":\"{\\\"a\\\":1}\"}},{\"id\":\"2\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":2}}}]},"
         "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"two\"},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"one\"}]",
         "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":"
         "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}},{\"id\":\"2\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":2}\"}}]},"
         "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"two\"},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"one\"}]"},
        {USER ",\"tools\":[" TOOL "]", USER ",\"tools\":[" TOOL "]"},
        {USER ",\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]",
         USER ",\"tools\":[" TOOL "]"},
        {"\"messages\":[{\"role\":\"system\",\"content\":\"x-anthropic-billing-header: 1\\nyou\"},{\"role\":\"user\",\"content\":\"a\"}]",
         "\"messages\":[{\"role\":\"system\",\"content\":\"you\"},{\"role\":\"user\",\"content\":\"a\"}]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_api_request r;
        ek_buf body = {0};
        ek_buf_fmt(&body, "{\"model\":\"m\",%s}", cases[i].ollama);
        taken(CHAT, &r, body.data);
        ek_buf theirs = rendered(&r);
        ek_buf_clear(&body);
        ek_buf_fmt(&body, "{%s}", cases[i].openai);
        taken(&ek_dialect_openai_chat, &r, body.data);
        ek_buf ours = rendered(&r);
        assert_string_equal(theirs.data, ours.data);
        ek_buf_fini(&body);
        ek_buf_fini(&theirs);
        ek_buf_fini(&ours);
    }
}

/* How long to keep a model, and what asks for one to be loaded or unloaded. */
static void loading(void **state)
{
    (void)state;
    static const struct {
        const char *keep, *says; /* NULL: refused */
    } cases[] = {
        {"0", "unload"},       {"0.0", "unload"},    {"\"0\"", "unload"}, {"\"0s\"", "unload"},  {"\"0m0s\"", "unload"},
        {"null", "load"},      {"300", "load"},      {"-1", "load"},      {"0.5", "load"},       {"\"-1\"", "load"},
        {"\"1h30m\"", "load"}, {"\"1.5h\"", "load"}, {"\"-1m\"", "load"}, {"\"300ms\"", "load"}, {"\"5us\"", "load"},
        {"\"\"", NULL},        {"\"m\"", NULL},      {"\"5x\"", NULL},    {"\"1.2.3s\"", NULL},  {"\".s\"", NULL},
        {"true", NULL},        {"[5]", NULL},        {"\"-\"", NULL},     {"\"5m \"", NULL},     {"\"5mm\"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int generate = 0; generate < 2; generate++) {
            const ek_dialect *d = generate ? GENERATE : CHAT;
            ek_api_request r;
            ek_buf body = {0}, want = {0}, got = {0};
            ek_turn_prompt none = {0};
            ek_buf_fmt(&body, "{\"model\":\"a\\\"b\",%s\"keep_alive\":%s}",
                       i % 2 ? "" : "\"prompt\":\"\",\"messages\":[],", cases[i].keep);
            ek_err err = parse(d, &r, body.data);
            if (err != (cases[i].says ? EK_OK : EK_EINVAL)) fail_msg("%s: %d", body.data, err);
            if (err) {
                assert_string_equal(r.param, "keep_alive");
            } else {
                assert_true(r.answered && !r.stream);
                assert_int_equal(d->prompt(&none, NULL, &r), EK_OK);
                assert_int_equal(d->answer(&got, NULL, &r, &none), EK_OK);
                ek_buf_fmt(
                    &want,
                    "{\"model\":\"a\\\"b\",\"created_at\":\"2023-11-14T22:13:21Z\",%s,\"done\":true,\"done_reason\":\"%s\"}",
                    generate ? "\"response\":\"\"" : "\"message\":{\"role\":\"assistant\",\"content\":\"\"}",
                    cases[i].says);
                assert_string_equal(got.data, want.data);
            }
            ek_buf_fini(&body);
            ek_buf_fini(&want);
            ek_buf_fini(&got);
            ek_api_request_fini(&r);
        }
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const ek_dialect *d;
        const char *body, *param, *says;
    } cases[] = {
        {CHAT, "[]", NULL, "must be a JSON object"},
        {CHAT, "{" USER "}", "model", "model: a name is required"},
        {CHAT, "{" USER ",\"model\":\"\"}", "model", "required"},
        {CHAT, "{" USER ",\"model\":5}", "model", "a text is needed"},
        {CHAT, "{\"model\":\"m\",\"messages\":\"hi\"}", "messages", "messages: a list is needed, not \"hi\""},
        {CHAT, "{\"model\":\"m\",\"messages\":[\"hi\"]}", "messages", "messages[0]: an object"},
        {CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"robot\"}]}",
         "messages", "messages[1]: role must be one of"},
        {CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":5}]}", "messages",
         "messages[0]: content"},
        {CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[\"aGk=\"]}]}",
         "messages",
         "messages[0]: members of type \"images\" are not taken in this message: the model that is served has no eyes"},
        {CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":\"aGk=\"}]}", "messages",
         "no eyes"},
        {CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}", "messages",
         "tool_calls[0]"},
        {CHAT, "{" USER ",\"model\":\"m\",\"tools\":{}}", "tools", "a list is needed, not an object"},
        {CHAT, "{" USER ",\"model\":\"m\",\"tools\":[{\"type\":\"function\",\"function\":{}}]}", "tools", "a name"},
        {CHAT, "{" USER ",\"model\":\"m\",\"tools\":[{\"type\":\"web_search\"}]}", "tools", "not \"web_search\""},
        {CHAT, "{" USER ",\"model\":\"m\",\"think\":\"a lot\"}", "think", "not \"a lot\""},
        {CHAT, "{" USER ",\"model\":\"m\",\"think\":1}", "think", "not 1"},
        {CHAT, "{" USER ",\"model\":\"m\",\"format\":\"yaml\"}", "format", "format: \"json\" or a schema"},
        {CHAT, "{" USER ",\"model\":\"m\",\"format\":true}", "format", "not true"},
        {CHAT, "{" USER ",\"model\":\"m\",\"stream\":\"yes\"}", "stream", "true or false"},
        {CHAT, "{" USER ",\"model\":\"m\",\"logprobs\":3}", "logprobs", "true or false"},
        {CHAT, "{" USER ",\"model\":\"m\",\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs", "0 to 20"},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":[]}", "options", "options: an object is needed, not a list"},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":{\"temperature\":\"hot\"}}", "options",
         "options: temperature: a number from 0 to 100 is needed, not \"hot\""},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":{\"top_k\":1.5}}", "options", "options: top_k: a whole number"},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":{\"num_predict\":\"8\"}}", "options",
         "num_predict: a whole number"},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":{\"num_ctx\":true}}", "options", "num_ctx: a whole number"},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":{\"use_mmap\":1}}", "options", "use_mmap: true or false"},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":{\"stop\":[1]}}", "options", "stop: a text"},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":{\"mirostat\":2}}", "options", "mirostat: not supported: only 0"},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":{\"typical_p\":0.5}}", "options",
         "typical_p: not supported: only 1"},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":{\"tfs_z\":0.5}}", "options", "tfs_z: not supported"},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":{\"repeat_penalty\":1.1,\"repeat_last_n\":64}}", "options",
         "repeat_last_n: not supported"},
        {CHAT, "{" USER ",\"model\":\"m\",\"options\":{\"repeat_last_n\":-2}}", "options",
         "repeat_last_n: a whole number from -1"},
        {GENERATE, "{\"prompt\":\"x\"}", "model", "required"},
        {GENERATE, "{\"model\":\"m\",\"prompt\":[\"x\"]}", "prompt", "a text is needed, not a list"},
        {GENERATE, "{\"model\":\"m\",\"prompt\":\"x\",\"system\":1}", "system", "a text is needed, not 1"},
        {GENERATE, "{\"model\":\"m\",\"prompt\":\"x\",\"suffix\":\"y\"}", "suffix", "suffix: not supported"},
        {GENERATE, "{\"model\":\"m\",\"prompt\":\"x\",\"template\":\"{{ .Prompt }}\"}", "template",
         "template: not supported"},
        {GENERATE, "{\"model\":\"m\",\"prompt\":\"x\",\"context\":[1,2]}", "context", "/api/chat"},
        {GENERATE, "{\"model\":\"m\",\"prompt\":\"x\",\"images\":[\"aGk=\"]}", "images", "no eyes"},
        {GENERATE, "{\"model\":\"m\",\"prompt\":\"x\",\"raw\":1}", "raw", "true or false"},
        {GENERATE, "{\"model\":\"m\",\"prompt\":\"x\",\"raw\":true,\"system\":\"s\"}", "system", "raw"},
        {&ek_dialect_ollama_show, "{}", "model", "required"},
        {&ek_dialect_ollama_show, "{\"model\":[]}", "model", "a text"},
        {&ek_dialect_ollama_pull, "{\"model\":\"other\"}", "model", "no \"other\" here: it serves org/keel-E2B"},
        {&ek_dialect_ollama_pull, "{\"model\":\"keel-E2B\"}", "model", "serves org/keel-E2B"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_api_request r;
        ek_err err = parse(cases[i].d, &r, cases[i].body);
        if (!err || ek_err_http(err) != 400 || !strstr(ek_err_text(), cases[i].says) || strchr(ek_err_text(), '\n'))
            fail_msg("%s: %s", cases[i].body, err ? ek_err_text() : "taken");
        if (cases[i].param) assert_string_equal(r.param, cases[i].param);
        ek_api_request_fini(&r);
    }
}

static json_t *answer_of(const ek_dialect *d, const char *body)
{
    ek_api_request r;
    ek_buf out = {0};
    json_t *v;
    ek_turn_prompt none = {0};
    taken(d, &r, body);
    assert_int_equal(d->answer(&out, NULL, &r, &none), EK_OK);
    if (ek_json_read(&v, out.data, out.len, 0)) fail_msg("%s: %s", out.data, ek_err_text());
    ek_buf_fini(&out);
    ek_api_request_fini(&r);
    return v;
}

static const char *text_at(const json_t *v, const char *key)
{
    const char *s = json_string_value(ek_json_get(v, key));
    if (!s) fail_msg("no text %s", key);
    return s;
}

static void models(void **state)
{
    (void)state;
    json_t *v = answer_of(&ek_dialect_ollama_show, "{\"name\":\"any:tag\",\"verbose\":true}");
    const json_t *info = ek_json_get(v, "model_info"), *details = ek_json_get(v, "details");
    assert_non_null(strstr(text_at(v, "parameters"), "num_ctx 512\n")); /* Continue reads the context from this line */
    assert_null(strstr(text_at(v, "template"), ".Suffix")); /* and from this whether texts can be inserted */
    assert_int_equal(json_integer_value(ek_json_get(info, "gemma4.context_length")), 512);
    assert_int_equal(json_integer_value(ek_json_get(info, "general.parameter_count")), 5123000000);
    assert_string_equal(text_at(info, "general.architecture"), "gemma4");
    assert_string_equal(text_at(details, "parameter_size"), "5.1B");
    assert_string_equal(text_at(details, "quantization_level"), "q4.64");
    assert_string_equal(text_at(v, "modified_at"), "2023-11-14T22:13:20Z");
    assert_int_equal(json_array_size(ek_json_get(v, "capabilities")), 3);
    json_decref(v);
    static const char *const served[] = {"{\"model\":\"org/keel-E2B\"}",
                                         "{\"name\":\"org/keel-e2b:latest\",\"stream\":false}"};
    for (int i = 0; i < 2; i++) {
        v = answer_of(&ek_dialect_ollama_pull, served[i]);
        assert_string_equal(text_at(v, "status"), "success");
        json_decref(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields),   cmocka_unit_test(as_openai), cmocka_unit_test(loading),
        cmocka_unit_test(refusals), cmocka_unit_test(models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
