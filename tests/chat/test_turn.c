/* One reply: text, reasoning and calls from tokens, stop strings, ends and digests; first from tokens of
 * a script, then from the bundled model. */
#include "helper.h"

#include <limits.h>
#include <stdio.h>

#include "base/machine/cpu.h"

/* What a client of a stream puts together. */
typedef struct reader {
    ek_buf content, rest; /* rest: reasoning, then calls, each as name, arguments, ; */
} reader;

static void on_event(void *arg, const ek_reply_event *e)
{
    reader *r = arg;
    assert_true(e->kind != EK_REPLY_CONTENT || e->n > 0);
    switch (e->kind) {
    case EK_REPLY_CONTENT: ek_buf_add(&r->content, e->text, e->n); break;
    case EK_REPLY_REASONING:
    case EK_REPLY_CALL_START:
    case EK_REPLY_CALL_ARGS: ek_buf_add(&r->rest, e->text, e->n); break;
    case EK_REPLY_CALL_END:
    case EK_REPLY_CALL_CUT: ek_buf_char(&r->rest, ';'); break;
    default: break;
    }
}

/* The same from the collected answer. */
static void write_answer(reader *r, const ek_answer *a)
{
    ek_buf_add(&r->content, ek_buf_text(&a->content), a->content.len);
    ek_buf_add(&r->rest, ek_buf_text(&a->reasoning), a->reasoning.len);
    for (int i = 0; i < a->n_calls; i++)
        ek_buf_fmt(&r->rest, "%s%s;", a->calls[i].name, ek_buf_text(&a->calls[i].args));
}

static ek_turn *open_turn(reader *r, const ek_turn_opts *o)
{
    ek_turn *t;
    ek_turn_prompt p = {.ids = ids_of("<bos><|turn>user\nHi<turn|>\n<|turn>model\n"), .thinking = o->logprobs};
    *r = (reader){0};
    assert_int_equal(ek_turn_open(&t, pocket(), &p, o, on_event, r), EK_OK);
    ek_turn_prompt_fini(&p);
    return t;
}

static void take(ek_turn *t, int32_t token, ek_finish finish, uint64_t digest)
{
    ek_turn_news n = {.token = token, .finish = finish, .n_prompt = 9, .n_cached = 4, .digest = digest};
    if (finish == EK_FINISH_ERROR) n.err = EK_EINTERNAL, n.text = "broken";
    ek_turn_feed(t, &n);
}

/* Every token of text, the last one with finish. */
static void take_text(ek_turn *t, const char *text, ek_finish finish)
{
    ek_ids ids = ids_of(text);
    for (size_t i = 0; i < ids.len; i++) take(t, ids.data[i], i + 1 == ids.len ? finish : EK_FINISH_NONE, 100 + i);
    ek_ids_fini(&ids);
}

static const struct {
    const char *text;
    ek_finish finish;
    const char *stop;
    bool tools, one_call;
    ek_turn_end end;
    const char *content, *rest;
} scripts[] = {
    {"Hello you.<turn|>", EK_FINISH_STOP, NULL, false, false, EK_END_STOP, "Hello you.", ""},
    {"Hello you.", EK_FINISH_LENGTH, NULL, false, false, EK_END_CONTEXT, "Hello you.", ""},
    {"Hello you.", EK_FINISH_CANCELLED, NULL, false, false, EK_END_CANCELLED, "Hello you.", ""},
    {"one two three<turn|>", EK_FINISH_STOP, "two", false, false, EK_END_STOP_STRING, "one ", ""},
    {"one tw<turn|>", EK_FINISH_STOP, "two", false, false, EK_END_STOP, "one tw", ""}, /* held back, then visible */
    {"one tw", EK_FINISH_LENGTH, "two", false, false, EK_END_CONTEXT, "one tw", ""},
    {"one tw", EK_FINISH_CANCELLED, "two", false, false, EK_END_CANCELLED, "one tw", ""},
    {"<|channel>thought\nHm two\n<channel|>Ja.<turn|>", EK_FINISH_STOP, "two", false, false, EK_END_STOP, "Ja.",
     "Hm two"}, /* only visible text is searched */
    {"<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{}<tool_call|><|tool_response>", EK_FINISH_STOP, NULL, true,
     false, EK_END_CALLS, "", "f{\"a\":1};g{};"},
    {"<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{}<tool_call|>", EK_FINISH_NONE, NULL, true, true,
     EK_END_CALLS, "", "f{\"a\":1};"},
    {"Ja.<|tool_call>call:f{a:1", EK_FINISH_LENGTH, NULL, true, false, EK_END_CONTEXT, "Ja.", "f{\"a\":;"},
    {"on<|tool_call>call:f{}<tool_call|><turn|>", EK_FINISH_STOP, "one", true, false, EK_END_CALLS, "on", "f{};"},
};

/* What the stream said is what the answer is, and both are as written. */
static void streams_and_answers_are_equal(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        reader stream, whole = {0};
        ek_turn_opts o = {
            .tools_active = scripts[i].tools, .one_call = scripts[i].one_call, .max_tokens = INT_MAX, .digest = true};
        if (scripts[i].stop) {
            o.stop[0] = "nowhere", o.stop_len[0] = 7;
            o.stop[1] = scripts[i].stop, o.stop_len[1] = strlen(scripts[i].stop);
            o.n_stop = 2;
        }
        ek_turn *t = open_turn(&stream, &o);
        take_text(t, scripts[i].text, scripts[i].finish);
        const ek_turn_result *r = ek_turn_result_of(t);
        if (r->end != scripts[i].end) fail_msg("script %zu ends with %d", i, (int)r->end);
        if (r->end == EK_END_STOP_STRING) assert_int_equal(r->stop_string, 1);
        write_answer(&whole, &r->answer);
        assert_string_equal(ek_buf_text(&stream.content), ek_buf_text(&whole.content));
        same_text(&whole.content, scripts[i].content);
        assert_string_equal(ek_buf_text(&stream.rest), ek_buf_text(&whole.rest));
        assert_string_equal(ek_buf_text(&whole.rest), scripts[i].rest);
        if (scripts[i].content[0] && scripts[i].text[0] != '<') /* what was written first comes first */
            assert_int_equal(r->answer.parts[0].kind, EK_REPLY_CONTENT);
        ek_buf_fini(&whole.rest);
        ek_buf_fini(&stream.content);
        ek_buf_fini(&stream.rest);
        ek_turn_close(t);
    }
}

/* Of the tokens of visible content there are log-probabilities, each with its place. */
static void logprobs_of_visible_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *text, *stop, *visible;
    } cases[] = {
        {"<|channel>thought\nHm\n<channel|>Ja.<turn|>", NULL, "Ja."},
        {"thought\nHm\n<channel|>Ja.<turn|>", NULL, "Ja."}, /* a header that looked like text */
        {"one two three", "two", "one "},
        {"one tw", "two", "one tw"},
        {"a<|tool_call>call:f{a:1}<tool_call|>", NULL, "a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reader r;
        ek_turn_opts o = {.tools_active = true, .max_tokens = INT_MAX, .logprobs = true};
        if (cases[i].stop) o.stop[0] = cases[i].stop, o.stop_len[0] = strlen(cases[i].stop), o.n_stop = 1;
        ek_turn *t = open_turn(&r, &o);
        ek_ids ids = ids_of(cases[i].text);
        for (size_t k = 0; k < ids.len; k++) {
            ek_turn_news n = {.token = ids.data[k],
                              .finish = k + 1 == ids.len ? EK_FINISH_LENGTH : EK_FINISH_NONE,
                              .logprobs.self = {ids.data[k], -(float)k}};
            ek_turn_feed(t, &n);
        }
        const ek_turn_result *u = ek_turn_result_of(t);
        ek_buf text = {0}; /* of the tokens that begin in the visible text: that, and perhaps a little more */
        int shown = 0;
        for (; shown < u->n_logprobs && u->logprobs[shown].from < u->answer.content.len; shown++) {
            size_t len;
            const char *s = ek_tokenizer_bytes(pocket()->tokenizer, u->logprobs[shown].at.self.token, &len);
            assert_int_equal(u->logprobs[shown].from, text.len);
            ek_buf_add(&text, s, len);
        }
        same_text(&r.content, cases[i].visible);
        assert_memory_equal(text.data, cases[i].visible, strlen(cases[i].visible));
        assert_true(text.len < strlen(cases[i].visible) + 8);
        ek_buf_fini(&text);
        ek_buf_fini(&r.content);
        ek_buf_fini(&r.rest);
        ek_ids_fini(&ids);
        ek_turn_close(t);
    }
}

/* A plain reply is its tokens' text, with the special ones or without. */
static void plain_replies(void **state)
{
    (void)state;
    for (int special = 0; special < 2; special++) {
        reader r;
        ek_turn_opts o = {.plain = true, .show_special = special, .max_tokens = INT_MAX};
        ek_turn *t = open_turn(&r, &o);
        take_text(t, "thought\nx<|tool_call>call:f{}<tool_call|>y", EK_FINISH_LENGTH);
        assert_int_equal(r.rest.len, 0);
        assert_int_equal(ek_turn_result_of(t)->end, EK_END_CONTEXT);
        same_text(&r.content, special ? "thought\nx<|tool_call>call:f{}<tool_call|>y" : "thought\nxcall:f{}y");
        ek_turn_close(t);
    }
}

static void counts(void **state)
{
    (void)state;
    reader r;
    ek_turn_opts o = {.max_tokens = 3};
    ek_turn *t = open_turn(&r, &o);
    const ek_turn_result *u = ek_turn_result_of(t);
    assert_true(u->n_prompt > 9); /* known before the engine says so */
    ek_ids ids = ids_of("<|channel>thought\nab");
    take(t, ids.data[0], EK_FINISH_NONE, 1);
    take(t, ids.data[1], EK_FINISH_NONE, 2);
    assert_int_equal(u->end, EK_END_NONE);
    take(t, ids.data[2], EK_FINISH_LENGTH, 3);
    assert_int_equal(u->end, EK_END_MAX_TOKENS);
    assert_int_equal(u->n_tokens, 3);
    assert_int_equal(u->n_reasoning, 3);
    assert_int_equal(u->n_prompt, 9);
    assert_int_equal(u->n_cached, 4);
    assert_true(u->digest == 3);
    ek_ids_fini(&ids);
    ek_buf_fini(&r.content);
    ek_buf_fini(&r.rest);
    ek_turn_close(t);
}

static void nothing_counts_after_the_end(void **state)
{
    (void)state;
    reader r;
    ek_turn_opts o = {.max_tokens = 100, .stop = {"b"}, .stop_len = {1}, .n_stop = 1};
    ek_turn *t = open_turn(&r, &o);
    ek_ids ids = ids_of("b");
    take(t, ids.data[0], EK_FINISH_NONE, 7);
    const ek_turn_result *u = ek_turn_result_of(t);
    assert_int_equal(u->end, EK_END_STOP_STRING);
    take(t, ids.data[0], EK_FINISH_NONE, 8); /* the engine was faster than the cancellation */
    take(t, -1, EK_FINISH_CANCELLED, 8);
    assert_int_equal(u->end, EK_END_STOP_STRING);
    assert_int_equal(u->n_tokens, 1);
    assert_true(u->digest == 7);
    assert_int_equal(r.content.len, 0);
    ek_turn_close(t);

    t = open_turn(&r, &o);
    take(t, -1, EK_FINISH_ERROR, 0);
    u = ek_turn_result_of(t);
    assert_int_equal(u->end, EK_END_ERROR);
    assert_int_equal(u->err, EK_EINTERNAL);
    assert_string_equal(u->error, "broken");
    ek_turn_abandon(t);
    assert_int_equal(u->end, EK_END_ERROR);
    ek_turn_close(t);
    ek_ids_fini(&ids);
}

/* --- with an engine --- */

static ek_model *model;
static ek_engine *engine;

static int start(void **state)
{
    ek_model_opts mo = {.cpu = ek_cpu_detect(), .k_format = EK_KV_BF16, .v_format = EK_KV_BF16};
    ek_engine_opts eo = ek_engine_defaults();
    (void)state;
    eo.max_requests = 4;
    eo.ctx_tokens = 512;
    if (ek_model_open(&model, "models/pocket", &mo) || ek_engine_open(&engine, model, &eo)) {
        printf("%s\n", ek_err_text());
        return 1;
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    ek_engine_close(engine);
    ek_model_close(model);
    return 0;
}

/* News kept until later, as between the server's threads. */
typedef struct queue {
    ek_turn_news v[600];
    int n;
} queue;

static void keep(void *arg, const ek_turn_news *n)
{
    queue *q = arg;
    assert_true(q->n < 600);
    q->v[q->n++] = *n;
}

static void at_once(void *arg, const ek_turn_news *n)
{
    (void)arg;
    ek_turn_feed(n->user, n);
}

static void prompt_for(ek_turn_prompt *p, const char *question)
{
    ek_conversation c = {0};
    ek_prompt_opts o = {.add_generation_prompt = true, .ctx_tokens = 512};
    add_text(&c, EK_ROLE_USER, question);
    *p = (ek_turn_prompt){0};
    assert_int_equal(ek_turn_prompt_make(p, pocket(), &c, NULL, &o), EK_OK);
    ek_conversation_fini(&c);
}

static void step_until_idle(void)
{
    while (ek_engine_step(engine)) continue;
}

typedef struct outcome {
    char text[1024];
    ek_turn_end end;
    int n_tokens;
    uint64_t digest;
} outcome;

static outcome run_turn(const ek_turn_opts *o, bool later)
{
    static queue q;
    ek_turn_prompt p;
    ek_turn *t;
    reader r = {0};
    q.n = 0;
    prompt_for(&p, "What is the capital of France?");
    assert_int_equal(ek_turn_open(&t, pocket(), &p, o, on_event, &r), EK_OK);
    assert_int_equal(ek_turn_submit(t, engine, &p, later ? keep : at_once, &q, t), EK_OK);
    ek_turn_prompt_fini(&p); /* the engine has its copy */
    assert_true(ek_turn_live(t));
    step_until_idle();
    for (int i = 0; i < q.n; i++) ek_turn_feed(t, &q.v[i]);
    assert_false(ek_turn_live(t));
    const ek_turn_result *u = ek_turn_result_of(t);
    outcome x = {.end = u->end, .n_tokens = u->n_tokens, .digest = u->digest};
    snprintf(x.text, sizeof x.text, "%s", ek_buf_text(&r.content));
    assert_string_equal(x.text, ek_buf_text(&u->answer.content));
    ek_buf_fini(&r.content);
    ek_buf_fini(&r.rest);
    ek_turn_close(t);
    return x;
}

static void the_model_answers(void **state)
{
    (void)state;
    ek_turn_opts o = {.max_tokens = 40, .sampling = ek_sampling_greedy(), .digest = true};
    outcome a = run_turn(&o, false), b = run_turn(&o, true);
    assert_true(a.end == EK_END_STOP || a.end == EK_END_MAX_TOKENS);
    assert_true(strlen(a.text) > 3);
    assert_string_equal(a.text, b.text);
    assert_int_equal(a.n_tokens, b.n_tokens);
    assert_true(a.digest != 0 && a.digest == b.digest);

    /* A stop string: what was sampled after it leaves no trace, whenever the news come. */
    char word[3] = {a.text[1], a.text[2], 0};
    o.stop[0] = word;
    o.stop_len[0] = 2;
    o.n_stop = 1;
    outcome c = run_turn(&o, false), d = run_turn(&o, true);
    assert_int_equal(c.end, EK_END_STOP_STRING);
    assert_int_equal(strlen(c.text), 1);
    assert_int_equal(c.n_tokens, d.n_tokens);
    assert_true(c.n_tokens < a.n_tokens && c.digest == d.digest && c.digest != a.digest);

    o = (ek_turn_opts){.max_tokens = 2, .sampling = ek_sampling_greedy()};
    outcome e = run_turn(&o, true);
    assert_int_equal(e.end, EK_END_MAX_TOKENS);
    assert_int_equal(e.n_tokens, 2);
    assert_true(e.digest == 0); /* nobody asked */
}

/* The log-probability of a token is the same bits where it is sampled and where it stands in a prompt. */
static void logprobs_of_replies_and_prompts(void **state)
{
    (void)state;
    ek_turn_prompt p;
    ek_turn *t, *again;
    reader r = {0}, r2 = {0};
    ek_turn_opts o = {.max_tokens = 6, .sampling = ek_sampling_greedy(), .logprobs = true, .n_top = 3};
    prompt_for(&p, "What is the capital of France?");
    int n_prompt = (int)p.ids.len;
    assert_int_equal(ek_turn_open(&t, pocket(), &p, &o, on_event, &r), EK_OK);
    assert_int_equal(ek_turn_submit(t, engine, &p, at_once, NULL, t), EK_OK);
    step_until_idle();
    const ek_turn_result *u = ek_turn_result_of(t);
    assert_int_equal(u->n_logprobs, 6);
    assert_null(u->prompt_logprobs);
    for (int i = 0; i < 6; i++) {
        const ek_logprobs *at = &u->logprobs[i].at;
        assert_int_equal(at->top[0].token, at->self.token); /* greedy */
        assert_true(at->self.logprob <= 0 && at->self.logprob == at->top[0].logprob);
        ek_ids_add(&p.ids, at->self.token);
    }
    o = (ek_turn_opts){
        .max_tokens = 0, .sampling = ek_sampling_greedy(), .plain = true, .prompt_logprobs = true, .n_top = 3};
    assert_int_equal(ek_turn_open(&again, pocket(), &p, &o, on_event, &r2), EK_OK);
    assert_int_equal(ek_turn_submit(again, engine, &p, at_once, NULL, again), EK_OK);
    step_until_idle();
    const ek_turn_result *v = ek_turn_result_of(again);
    assert_int_equal(v->end, EK_END_MAX_TOKENS);
    assert_int_equal(v->n_tokens, 0);
    assert_int_equal(v->answer.content.len, 0);
    assert_int_equal(v->prompt_logprobs[0].n_top, -1);
    for (int i = 0; i < 6; i++)
        assert_memory_equal(&v->prompt_logprobs[n_prompt + i].self, &u->logprobs[i].at.self, sizeof(ek_logprob));
    for (int i = 0; i < 6; i++)
        assert_memory_equal(v->prompt_logprobs[n_prompt + i].top, u->logprobs[i].at.top, 3 * sizeof(ek_logprob));
    ek_turn_prompt_fini(&p);
    ek_buf_fini(&r.content);
    ek_turn_close(t);
    ek_turn_close(again);
}

static void choices_draw_differently(void **state)
{
    (void)state;
    ek_turn_opts o = {.max_tokens = 12, .sampling = ek_sampling_greedy(), .ignore_eos = true, .digest = true};
    o.sampling.temperature = 30; /* the bundled model is sure of itself */
    o.sampling.seed = 11;
    outcome a = run_turn(&o, false), again = run_turn(&o, false);
    o.choice = 1;
    outcome b = run_turn(&o, false);
    assert_true(a.digest == again.digest);
    assert_true(a.digest != b.digest);
}

static void cancelled_and_abandoned(void **state)
{
    (void)state;
    for (int abandon = 0; abandon < 2; abandon++) {
        ek_turn_prompt p;
        ek_turn *t;
        reader r = {0};
        ek_turn_opts o = {.max_tokens = 100, .sampling = ek_sampling_greedy(), .ignore_eos = true};
        prompt_for(&p, "Hello");
        assert_int_equal(ek_turn_open(&t, pocket(), &p, &o, on_event, &r), EK_OK);
        assert_int_equal(ek_turn_submit(t, engine, &p, at_once, NULL, t), EK_OK);
        for (int i = 0; i < 8; i++) ek_engine_step(engine);
        const ek_turn_result *u = ek_turn_result_of(t);
        assert_true(u->n_tokens > 2);
        (abandon ? ek_turn_abandon : ek_turn_cancel)(t);
        assert_int_equal(u->end, abandon ? EK_END_CANCELLED : EK_END_NONE);
        assert_true(ek_turn_live(t));
        step_until_idle();
        assert_false(ek_turn_live(t));
        assert_int_equal(u->end, EK_END_CANCELLED);
        assert_true(u->answer.content.len > 0);
        ek_buf_fini(&r.content);
        ek_buf_fini(&r.rest);
        ek_turn_prompt_fini(&p);
        ek_turn_close(t);
    }
}

/* Where tools are not active the model cannot begin a call, however much it wants to: here by the
 * strongest bias a request may have. */
static void no_call_without_tools(void **state)
{
    (void)state;
    ek_logit_bias bias = {pocket()->marks.id[EK_MARK_CALL_OPEN], 100};
    for (int active = 0; active < 2; active++) {
        static queue q;
        ek_turn_prompt p;
        ek_turn *t;
        reader r = {0};
        ek_turn_opts o = {
            .tools_active = active, .max_tokens = 2, .sampling = ek_sampling_greedy(), .ignore_eos = true};
        o.sampling.bias = &bias;
        o.sampling.n_bias = 1;
        q.n = 0;
        prompt_for(&p, "Hello");
        assert_int_equal(ek_turn_open(&t, pocket(), &p, &o, on_event, &r), EK_OK);
        assert_int_equal(ek_turn_submit(t, engine, &p, keep, &q, t), EK_OK);
        step_until_idle();
        int calls = 0;
        for (int i = 0; i < q.n; i++) {
            calls += q.v[i].token == bias.token;
            ek_turn_feed(t, &q.v[i]);
        }
        assert_int_equal(calls > 0, active);
        ek_buf_fini(&r.content);
        ek_buf_fini(&r.rest);
        ek_turn_prompt_fini(&p);
        ek_turn_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_and_answers_are_equal),
        cmocka_unit_test(logprobs_of_visible_tokens),
        cmocka_unit_test(plain_replies),
        cmocka_unit_test(logprobs_of_replies_and_prompts),
        cmocka_unit_test(counts),
        cmocka_unit_test(nothing_counts_after_the_end),
        cmocka_unit_test(the_model_answers),
        cmocka_unit_test(choices_draw_differently),
        cmocka_unit_test(cancelled_and_abandoned),
        cmocka_unit_test(no_call_without_tools),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
