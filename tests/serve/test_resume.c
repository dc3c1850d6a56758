/* Streams that continue: what a body may say of one, what events get, and which tokens go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "serve/api/dialect.h"
#include "serve/resume/resume.h"
#include "text/json/json.h"

enum { VOCAB = 4096, CTX = 64 };

/* --- bodies --- */

static const struct {
    const char *json, *says; /* NULL: it is taken */
} bodies[] = {
    {"true", NULL},
    {"false", NULL},
    {"null", NULL},
    {"1", "evenkeel.resume: true, or what the events"},
    {"\"x\"", "evenkeel.resume: true, or what the events"},
    {"{}", "evenkeel.resume.tokens: a list"},
    {"{\"tokens\":[]}", "at least one"},
    {"{\"tokens\":[4096]}", "item 0 is no token: a whole number from 0 to 4095"},
    {"{\"tokens\":[1,-1]}", "item 1 is no token"},
    {"{\"tokens\":[1,1.0]}", "item 1 is no token"},
    {"{\"tokens\":[1]}", "evenkeel.resume.id"},
    {"{\"tokens\":[1],\"id\":\"A\"}", "evenkeel.resume.id"},
    {"{\"tokens\":[1],\"id\":\"\"}", "evenkeel.resume.id"},
    {"{\"tokens\":[1],\"id\":\"cmpl-1\"}", "evenkeel.resume.created"},
    {"{\"tokens\":[1],\"id\":\"cmpl-1\",\"created\":-1}", "evenkeel.resume.created"},
    {"{\"tokens\":[1],\"id\":\"cmpl-1\",\"created\":1}", "evenkeel.resume.digest: it is needed"},
    {"{\"tokens\":[1],\"id\":\"cmpl-1\",\"created\":1,\"digest\":\"0123456789abcdeF\"}", "16 hex digits"},
    {"{\"tokens\":[1],\"id\":\"cmpl-1\",\"created\":1,\"digest\":\"0123456789abcdef0\"}", "16 hex digits"},
    {"{\"tokens\":[1],\"id\":\"cmpl-1\",\"created\":1,\"digest\":5}", "16 hex digits"},
    {"{\"tokens\":[1],\"id\":\"cmpl-1\",\"created\":1,\"at\":2,\"digest\":\"0123456789abcdef\"}",
     "had 2 tokens, 1 are sent"},
    {"{\"tokens\":[1],\"id\":\"cmpl-1\",\"created\":1,\"seed\":9007199254740993,\"digest\":\"0123456789abcdef\"}",
     "evenkeel.resume.seed"},
    {"{\"tokens\":[1],\"id\":\"cmpl-1\",\"created\":1,\"events\":1.5,\"digest\":\"0123456789abcdef\"}",
     "evenkeel.resume.events"},
    {"{\"tokens\":[1],\"id\":\"cmpl-1\",\"created\":1,\"cached\":65,\"digest\":\"0123456789abcdef\"}",
     "evenkeel.resume.cached"},
    {"{\"tokens\":[1],\"id\":\"cmpl-1\",\"created\":1,\"digest\":\"0123456789abcdef\",\"logits\":\"x\"}",
     "evenkeel.resume.logits"},
    {"{\"tokens\":[1,2],\"id\":\"cmpl-1\",\"created\":1,\"seed\":7,\"at\":2,\"events\":3,\"cached\":9,\"x\":[],"
     "\"digest\":\"0123456789abcdef\",\"logits\":\"fedcba9876543210\"}",
     NULL},
};

static void bodies_are_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        json_t *v, *o;
        ek_resume r = {0};
        ek_buf text = {0};
        ek_buf_fmt(&text, "{\"resume\":%s}", bodies[i].json);
        assert_int_equal(ek_json_read(&o, text.data, text.len, 0), EK_OK);
        v = json_object_get(o, "resume");
        ek_err err = ek_resume_read(&r, v, VOCAB, CTX);
        assert_int_equal(err, bodies[i].says ? EK_EINVAL : EK_OK);
        if (err && !strstr(ek_err_text(), bodies[i].says)) fail_msg("%s: %s", bodies[i].json, ek_err_text());
        if (!err && r.tokens.len > 0) {
            assert_true(r.on && r.has_seed && r.has_logits);
            assert_int_equal(r.digest, 0x0123456789abcdef);
            assert_int_equal(r.logits, 0xfedcba9876543210);
            assert_int_equal(r.events, 3);
        }
        ek_resume_fini(&r);
        json_decref(o);
        ek_buf_fini(&text);
    }
}

static void no_memory_is_taken_for_too_many_tokens(void **state)
{
    json_t *v = json_object(), *list = json_array();
    ek_resume r = {0};
    (void)state;
    for (int i = 0; i < 1000000; i++) json_array_append_new(list, json_integer(5));
    json_object_set_new(v, "tokens", list);
    assert_int_equal(ek_resume_read(&r, v, VOCAB, CTX), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "there are 1000000, the context has 64"));
    assert_null(r.tokens.data);
    json_decref(v);
}

/* --- events --- */

static ek_resume_marks begin(void)
{
    ek_resume_marks m = {.on = true, .id = "cmpl-1", .created = 5};
    const ek_resume none = {.begin = 3};
    const ek_sampling greedy = ek_sampling_greedy();
    ek_resume_marks_init(&m, &none, &greedy);
    return m;
}

/* Events as a dialect writes them; seed: the last one has it, as the last object of a reply. in: their texts, those
 * that end with a brace are objects, each ends with `ends`. */
static void marked(ek_resume_marks *m, const char *in, const char *ends, const uint64_t *seed, const char *want)
{
    ek_buf out = {0};
    const ek_turn_result result = {.n_cached = 2, .n_images = seed ? 4 : 0}, *choices[] = {&result};
    const ek_turn_opts turn = {0};
    const ek_api_reply r = {.choices = choices, .turn = &turn, .seed = seed, .marks = m};
    ek_buf_str(&out, "before");
    for (const char *end; (end = strstr(in, ends)) != NULL; in = end + strlen(ends)) {
        const bool object = end[-1] == '}';
        ek_event_begin(&out, &r);
        ek_buf_add(&out, in, (size_t)(end - in) - object);
        if (object) ek_event_extend(&out, &r, seed != NULL);
        ek_buf_str(&out, object ? "}" : "");
        ek_buf_str(&out, ends);
        ek_event_end(&out, &r);
    }
    assert_string_equal(ek_buf_text(&out) + 6, want);
    assert_int_equal(out.len, strlen(out.data));
    ek_buf_fini(&out);
}

static void every_event_says_how_it_goes_on(void **state)
{
    ek_resume_marks m = begin();
    char want[512];
    uint64_t d1, d3;
    (void)state;
    ek_resume_marks_token(&m, 9);
    d1 = m.chain;
    snprintf(
        want, sizeof want,
        "data: {\"a\":1,\"evenkeel\":{\"resume\":{\"id\":\"cmpl-1\",\"created\":5,\"cached\":2,\"at\":1,\"tokens\":[9],"
        "\"events\":1,\"digest\":\"%016llx\"}}}\n\nevent: x\ndata: {\"b\":{},\"evenkeel\":{\"resume\":{\"at\":1,\"events\":2,"
        "\"digest\":\"%016llx\"}}}\n\n",
        (unsigned long long)d1, (unsigned long long)d1);
    marked(&m, "data: {\"a\":1}\n\nevent: x\ndata: {\"b\":{}}\n\n", "\n\n", NULL, want);
    ek_resume_marks_token(&m, 10);
    marked(&m, "", "\n\n", NULL, ""); /* a token without an event stands in the next one */
    ek_resume_marks_token(&m, 11);
    d3 = m.chain;
    snprintf(
        want, sizeof want,
        "data: {\"a\":1,\"evenkeel\":{\"seed\":4,\"resume\":{\"at\":3,\"tokens\":[10,11],\"events\":1,\"digest\":\"%016llx\"}}}\n\n"
        "data: [DONE]\n\n",
        (unsigned long long)d3);
    marked(&m, "data: {\"a\":1}\n\ndata: [DONE]\n\n", "\n\n", &(uint64_t){4}, want);
    assert_true(d1 != d3);
    ek_resume_marks_fini(&m);
}

static void what_the_client_has_is_left_out(void **state)
{
    const int32_t tokens[] = {9, 10};
    const ek_sampling greedy = ek_sampling_greedy();
    ek_resume_marks whole = begin(), m = {.on = true, .id = "cmpl-1"};
    char want[256];
    (void)state;
    ek_resume_marks_token(&whole, 9);
    const ek_resume r = {
        .before = whole.chain, .events = 2, .tokens = {.data = (int32_t *)(uintptr_t)tokens, .len = 2}};
    ek_resume_marks_token(&whole, 10);
    ek_resume_marks_init(&m, &r, &greedy);
    ek_resume_marks_token(&m, 10);
    assert_int_equal(m.chain, whole.chain);
    marked(&m, "{\"a\":1}\n", "\n", NULL, "");
    snprintf(want, sizeof want, "{\"c\":1,\"evenkeel\":{\"resume\":{\"at\":2,\"events\":3,\"digest\":\"%016llx\"}}}\n",
             (unsigned long long)m.chain);
    marked(&m, "{\"b\":1}\n{\"c\":1}\n", "\n", NULL, want); /* of the same token */
    ek_resume_marks_token(&m, 11);
    snprintf(want, sizeof want,
             "{\"d\":1,\"evenkeel\":{\"resume\":{\"at\":3,\"tokens\":[11],\"events\":1,\"digest\":\"%016llx\"}}}\n",
             (unsigned long long)m.chain);
    marked(&m, "{\"d\":1}\n", "\n", NULL, want);
    ek_resume_marks_fini(&m);
    ek_resume_marks_fini(&whole);
}

/* --- replies that go on --- */

static ek_chat_model pocket;

static ek_err goes_on(const char *text, int max_tokens, int ctx, bool wrong)
{
    ek_grammar *g;
    json_t *colours = json_pack("[s,s]", "red", "rouge");
    const ek_reply_form form = {.text = EK_TEXT_CHOICE, .schema = colours};
    ek_turn_prompt prompt = {0};
    ek_resume r = {.begin = 77};
    assert_int_equal(ek_grammar_open(&g, pocket.vocab, &form, NULL, false), EK_OK);
    ek_turn_opts o = {.max_tokens = max_tokens, .grammar = g, .sampling = ek_sampling_greedy()};
    static const char asked[] = "<bos><|turn>user\nA colour.<turn|>\n<|turn>model\n";
    assert_int_equal(ek_encode(pocket.tokenizer, asked, sizeof asked - 1, NULL, EK_CONTROL_ALL, &prompt.ids), EK_OK);
    assert_int_equal(ek_encode(pocket.tokenizer, text, strlen(text), NULL, 0, &r.tokens), EK_OK);
    r.digest = ek_resume_seed(r.begin, &o.sampling);
    for (size_t i = 0; i < r.tokens.len; i++) r.digest = ek_resume_token(r.digest, r.tokens.data[i]);
    r.digest ^= wrong;
    ek_err err = ek_resume_check(&r, &pocket, &prompt, &o, ek_tokenizer_size(pocket.tokenizer), ctx);
    ek_resume_fini(&r);
    ek_turn_prompt_fini(&prompt);
    ek_grammar_close(g);
    json_decref(colours);
    return err;
}

static void tokens_have_to_fit(void **state)
{
    (void)state;
    assert_int_equal(ek_chat_model_open(&pocket, "models/pocket"), EK_OK);
    assert_int_equal(goes_on("r", 9, 100, false), EK_OK);
    assert_int_equal(goes_on("red", 9, 100, false), EK_OK);
    assert_int_equal(goes_on("green", 9, 100, false), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "does not fit the form of the reply"));
    assert_int_equal(goes_on("red", 9, 100, true), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "belongs to other tokens, another body or another model"));
    assert_int_equal(goes_on("red", 0, 100, false), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "the reply may have 0"));
    assert_int_equal(goes_on("red", 9, 5, false), EK_ETOOLONG);
    ek_chat_model_close(&pocket);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_are_checked),
        cmocka_unit_test(no_memory_is_taken_for_too_many_tokens),
        cmocka_unit_test(every_event_says_how_it_goes_on),
        cmocka_unit_test(what_the_client_has_is_left_out),
        cmocka_unit_test(tokens_have_to_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
