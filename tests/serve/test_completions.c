/* Completions, tokenize and detokenize: bodies, the tokens of their prompts, and the shape of a reply. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "serve/api/dialect.h"
#include "serve/api/openai.h"
#include "text/json/json.h"

static ek_chat_model model;
static ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}, .ctx_tokens = 64};

static int open_model(void **state)
{
    (void)state;
    if (ek_chat_model_open(&model, "models/pocket")) return -1;
    limits.n_vocab = ek_tokenizer_size(model.tokenizer);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    ek_chat_model_close(&model);
    return 0;
}

static ek_err prepare(const ek_dialect *d, ek_api_request *r, ek_turn_prompt *p, const char *body)
{
    return ek_api_prepare(r, p, d, &model, body, strlen(body), &limits);
}

static void fini(ek_api_request *r, ek_turn_prompt *p)
{
    ek_api_request_fini(r);
    ek_turn_prompt_fini(p);
}

static int32_t id(const char *text)
{
    int32_t i = ek_tokenizer_id(model.tokenizer, text);
    assert_true(i >= 0);
    return i;
}

static void prompts(void **state)
{
    (void)state;
    const ek_dialect *d = &ek_dialect_openai_completions;
    ek_api_request r;
    ek_turn_prompt p;
    assert_int_equal(prepare(d, &r, &p, "{\"prompt\":\"<|turn>a\"}"), EK_OK);
    assert_int_equal(p.ids.data[0], id("<bos>"));
    assert_int_equal(p.ids.data[1], id("<|turn>")); /* spelled out, it counts */
    assert_int_equal(r.turn.max_tokens, 16);
    assert_true(r.turn.plain && !r.turn.show_special && !r.turn.logprobs && r.n == 1 && r.n_more == 0);
    size_t n = p.ids.len;
    fini(&r, &p);
    assert_int_equal(prepare(d, &r, &p, "{\"prompt\":\"<bos><|turn>a\"}"), EK_OK);
    assert_int_equal(p.ids.len, n); /* never two of them */
    fini(&r, &p);
    assert_int_equal(prepare(d, &r, &p, "{\"prompt\":\"<|turn>a\",\"add_special_tokens\":false}"), EK_OK);
    assert_int_equal(p.ids.len, n - 1);
    fini(&r, &p);
    assert_int_equal(prepare(d, &r, &p, "{\"prompt\":[5,6,7]}"), EK_OK);
    assert_true(p.ids.len == 3 && p.ids.data[0] == 5 && p.ids.data[2] == 7); /* tokens are never touched */
    fini(&r, &p);
    assert_int_equal(prepare(d, &r, &p, "{\"prompt\":[[5],[6,7]],\"n\":3,\"echo\":true,\"logprobs\":0}"), EK_OK);
    assert_true(r.n == 6 && r.n_more == 1 && r.turn.logprobs && r.turn.prompt_logprobs && r.turn.n_top == 0);
    for (int i = 0; i < 6; i++) {
        const ek_turn_prompt *q = ek_api_prompt_of(&r, &p, i);
        assert_int_equal(q->ids.len, i < 3 ? 1 : 2);
    }
    fini(&r, &p);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const ek_dialect *d;
        const char *body, *param, *says;
    } cases[] = {
        {&ek_dialect_openai_completions, "{}", "prompt", "needed"},
        {&ek_dialect_openai_completions, "{\"prompt\":[]}", "prompt", "at least one"},
        {&ek_dialect_openai_completions, "{\"prompt\":[[]]}", "prompt", "needed"},
        {&ek_dialect_openai_completions, "{\"prompt\":[1,\"a\"]}", "prompt", "whole numbers"},
        {&ek_dialect_openai_completions, "{\"prompt\":[1,99999999]}", "prompt", "whole numbers"},
        {&ek_dialect_openai_completions, "{\"prompt\":{}}", "prompt", "needed"},
        {&ek_dialect_openai_completions, "{\"prompt\":[\"a\",\"b\"],\"n\":33}", "prompt", "64 replies"},
        {&ek_dialect_openai_completions, "{\"prompt\":\"a\",\"suffix\":\"b\"}", "suffix", "not supported"},
        {&ek_dialect_openai_completions, "{\"prompt\":\"a\",\"best_of\":2}", "best_of", "value of n"},
        {&ek_dialect_openai_completions, "{\"prompt\":\"a\",\"logprobs\":true}", "logprobs", "whole number"},
        {&ek_dialect_openai_completions, "{\"prompt\":\"a\",\"max_tokens\":-2}", "max_tokens", "from -1"},
        {&ek_dialect_openai_completions,
         "{\"prompt\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
         "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}",
         "prompt", "prompt is too long: 64 tokens > 63 maximum"},
        {&ek_dialect_tokenize, "{}", "prompt", "a text"},
        {&ek_dialect_tokenize, "{\"prompt\":5}", "prompt", "a text"},
        {&ek_dialect_tokenize, "{\"messages\":[]}", "messages", "at least one"},
        {&ek_dialect_detokenize, "{}", "tokens", "list"},
        {&ek_dialect_detokenize, "{\"tokens\":[-1]}", "tokens", "whole numbers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_api_request r;
        ek_turn_prompt p;
        ek_err err = prepare(cases[i].d, &r, &p, cases[i].body);
        if (!err || ek_err_http(err) != 400 || !strstr(ek_err_text(), cases[i].says))
            fail_msg("%s: %s", cases[i].body, err ? ek_err_text() : "taken");
        assert_string_equal(r.param, cases[i].param);
        fini(&r, &p);
    }
}

/* What the paths that generate nothing reply. */
static void answers(void **state)
{
    (void)state;
    ek_api_request r;
    ek_turn_prompt p;
    ek_buf want = {0};
    assert_int_equal(prepare(&ek_dialect_tokenize, &r, &p, "{\"prompt\":\"<turn|>\",\"return_token_strs\":true}"),
                     EK_OK);
    ek_buf_fmt(&want, "{\"count\":2,\"max_model_len\":64,\"tokens\":[%d,%d],\"token_strs\":[\"<bos>\",\"<turn|>\"]}",
               id("<bos>"), id("<turn|>"));
    assert_string_equal(r.answer.data, want.data);
    fini(&r, &p);
    ek_buf_clear(&want);
    assert_int_equal(prepare(&ek_dialect_tokenize, &r, &p, "{\"content\":\"<turn|>\",\"with_pieces\":true}"), EK_OK);
    ek_buf_fmt(&want,
               "{\"count\":1,\"max_model_len\":64,\"tokens\":[{\"id\":%d,\"piece\":\"<turn|>\"}],\"token_strs\":null}",
               id("<turn|>"));
    assert_string_equal(r.answer.data, want.data);
    fini(&r, &p);
    ek_buf_clear(&want);
    ek_buf_fmt(&want, "{\"tokens\":[%d,%d]}", id("<bos>"), id("<turn|>"));
    assert_int_equal(prepare(&ek_dialect_detokenize, &r, &p, want.data), EK_OK);
    assert_string_equal(r.answer.data, "{\"prompt\":\"<bos><turn|>\",\"content\":\"<bos><turn|>\"}");
    fini(&r, &p);
    ek_buf_fini(&want);
    /* A text that does not fit the context is counted all the same. */
    ek_buf body = {0};
    ek_buf_str(&body, "{\"prompt\":\"");
    for (int i = 0; i < 500; i++) ek_buf_str(&body, "<turn|>");
    ek_buf_str(&body, "\"}");
    assert_int_equal(prepare(&ek_dialect_tokenize, &r, &p, body.data), EK_OK);
    assert_non_null(strstr(r.answer.data, "{\"count\":501,"));
    fini(&r, &p);
    ek_buf_fini(&body);
}

/* One choice with two tokens of log-probabilities behind an echoed prompt. */
static void legacy_logprobs(void **state)
{
    (void)state;
    const ek_dialect *d = &ek_dialect_openai_completions;
    ek_api_request q;
    ek_turn_prompt p;
    ek_buf body = {0}, out = {0};
    int32_t a = id("a"), b = id("b"), bos = id("<bos>");
    ek_buf_fmt(&body, "{\"prompt\":[%d,%d],\"echo\":true,\"logprobs\":1}", bos, a);
    assert_int_equal(prepare(d, &q, &p, body.data), EK_OK);
    ek_logprobs prompt[2] = {{.self = {bos, 0}, .n_top = -1}, {.self = {a, -1.5f}, .n_top = 1, .top = {{b, -0.25f}}}};
    ek_turn_logprobs reply[3] = {{.at = {.self = {b, -0.5f}, .n_top = 1, .top = {{b, -0.5f}}}, .from = 0},
                                 {.at = {.self = {a, -2}, .n_top = 1, .top = {{b, -0.125f}}}, .from = 1},
                                 {.at = {.self = {a, -2}, .n_top = 1}, .from = 2}}; /* behind a stop text */
    ek_turn_result t = {
        .end = EK_END_STOP_STRING, .n_prompt = 2, .prompt_logprobs = prompt, .logprobs = reply, .n_logprobs = 3};
    ek_reply_event e = {.kind = EK_REPLY_CONTENT, .text = "ba", .n = 2};
    ek_reply_collect(&t.answer, &e);
    const ek_turn_result *choices[] = {&t};
    ek_api_reply r = {.id = "cmpl-1",
                      .model = "m",
                      .fingerprint = "f",
                      .n = 1,
                      .n_prompts = 1,
                      .choices = choices,
                      .own = q.own,
                      .tokenizer = model.tokenizer,
                      .turn = &q.turn};
    d->end(&out, &r);
    assert_non_null(strstr(out.data, "\"object\":\"text_completion\""));
    static const char want[] =
        "\"choices\":[{\"index\":0,\"text\":\"aba\",\"logprobs\":{\"tokens\":[\"<bos>\",\"a\",\"b\",\"a\"],"
        "\"token_logprobs\":[null,-1.5,-0.5,-2],\"top_logprobs\":[null,{\"b\":-0.25,\"a\":-1.5},{\"b\":-0.5},"
        "{\"b\":-0.125,\"a\":-2}],\"text_offset\":[0,0,1,2]},\"finish_reason\":\"stop\"}]";
    if (!strstr(out.data, want)) fail_msg("%s", out.data);
    ek_answer_fini(&t.answer);
    fini(&q, &p);
    ek_buf_fini(&out);
    ek_buf_fini(&body);
}

/* The top_logprobs of a reply of one token. */
static ek_buf top_of(const ek_logprobs *at)
{
    const ek_dialect *d = &ek_dialect_openai_completions;
    ek_api_request q;
    ek_turn_prompt p;
    ek_buf out = {0}, got = {0};
    assert_int_equal(prepare(d, &q, &p, "{\"prompt\":[2],\"logprobs\":5}"), EK_OK);
    ek_turn_logprobs reply = {.at = *at};
    ek_turn_result t = {.end = EK_END_STOP, .n_prompt = 1, .logprobs = &reply, .n_logprobs = 1};
    ek_reply_event e = {.kind = EK_REPLY_CONTENT, .text = "x", .n = 1};
    ek_reply_collect(&t.answer, &e);
    const ek_turn_result *choices[] = {&t};
    ek_api_reply r = {.id = "cmpl-1",
                      .model = "m",
                      .fingerprint = "f",
                      .n = 1,
                      .n_prompts = 1,
                      .choices = choices,
                      .own = q.own,
                      .tokenizer = model.tokenizer,
                      .turn = &q.turn};
    d->end(&out, &r);
    json_t *v = NULL;
    assert_int_equal(ek_json_read(&v, out.data, out.len, 0), EK_OK);
    const json_t *lp = ek_json_get(json_array_get(ek_json_get(v, "choices"), 0), "logprobs");
    ek_json_write(&got, json_array_get(ek_json_get(lp, "tokens"), 0));
    ek_json_write(&got, json_array_get(ek_json_get(lp, "top_logprobs"), 0));
    json_decref(v);
    ek_answer_fini(&t.answer);
    fini(&q, &p);
    ek_buf_fini(&out);
    return got;
}

/* A map has one place per name: parts of characters are named by their bytes, and so is a token whose text another one
 * has that is more likely, or that was sampled. */
static void candidates_keep_their_places(void **state)
{
    (void)state;
    int32_t a = id("a"), byte_a = id("<0x61>"), e2 = id("<0xE2>"), c3 = id("<0xC3>"), line = id("\n"),
            byte_line = id("<0x0A>");
    const struct {
        ek_logprobs at;
        const char *want;
    } cases[] = {
        {{.self = {c3, -1}, .n_top = 3, .top = {{e2, -0.5f}, {c3, -1}, {id("<0xFF>"), -2}}},
         "\"bytes:\\\\xc3\"{\"bytes:\\\\xe2\":-0.5,\"bytes:\\\\xc3\":-1,\"bytes:\\\\xff\":-2}"},
        {{.self = {c3, -9}, .n_top = 2, .top = {{e2, -0.5f}, {a, -1}}},
         "\"bytes:\\\\xc3\"{\"bytes:\\\\xe2\":-0.5,\"a\":-1,\"bytes:\\\\xc3\":-9}"},
        {{.self = {a, -0.5f}, .n_top = 2, .top = {{a, -0.5f}, {byte_a, -1}}}, "\"a\"{\"a\":-0.5,\"bytes:\\\\x61\":-1}"},
        {{.self = {byte_a, -1}, .n_top = 2, .top = {{a, -0.5f}, {byte_a, -1}}},
         "\"a\"{\"bytes:\\\\x61\":-0.5,\"a\":-1}"},
        {{.self = {byte_line, -3}, .n_top = 1, .top = {{line, -0.5f}}}, "\"\\n\"{\"bytes:\\\\x0a\":-0.5,\"\\n\":-3}"},
        {{.self = {a, -3}, .n_top = 0}, "\"a\"{\"a\":-3}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_buf got = top_of(&cases[i].at);
        assert_string_equal(got.data, cases[i].want);
        ek_buf_fini(&got);
    }
}

/* In chat completions and responses: part of a character as its bytes, without a prefix, and the bytes as numbers. */
static void parts_of_characters(void **state)
{
    (void)state;
    int32_t a = id("a"), e2 = id("<0xE2>"), ff = id("<0xFF>");
    ek_turn_logprobs one = {.at = {.self = {e2, -1}, .n_top = 3, .top = {{ff, -0.5f}, {e2, -1}, {a, -2}}}};
    ek_turn_result t = {.logprobs = &one, .n_logprobs = 1};
    const ek_turn_result *choices[] = {&t};
    ek_api_reply r = {.n = 1, .choices = choices, .tokenizer = model.tokenizer};
    ek_buf out = {0};
    ek_openai_logprobs(&out, &r, 0, 0, 1);
    assert_string_equal(out.data, "[{\"token\":\"\\\\xe2\",\"logprob\":-1,\"bytes\":[226],\"top_logprobs\":["
                                  "{\"token\":\"\\\\xff\",\"logprob\":-0.5,\"bytes\":[255]},"
                                  "{\"token\":\"\\\\xe2\",\"logprob\":-1,\"bytes\":[226]},"
                                  "{\"token\":\"a\",\"logprob\":-2,\"bytes\":[97]}]}]");
    ek_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts),
        cmocka_unit_test(refusals),
        cmocka_unit_test(answers),
        cmocka_unit_test(legacy_logprobs),
        cmocka_unit_test(candidates_keep_their_places),
        cmocka_unit_test(parts_of_characters),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
