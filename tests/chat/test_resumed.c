/* A reply that began in another turn goes on in this one: cut behind every token, from tokens of a script. */
#include "helper.h"

#include <limits.h>

/* What a client of a stream puts together: every event, with its kind. */
static void on_event(void *arg, const ek_reply_event *e)
{
    ek_buf *b = arg;
    ek_buf_fmt(b, "%d:", (int)e->kind);
    if (e->text) ek_buf_add(b, e->text, e->n);
    ek_buf_char(b, '\n');
}

typedef struct scene {
    const char *text;
    ek_turn_opts opts;
} scene;

static ek_turn *open_turn(ek_buf *events, ek_turn_opts o, const int32_t *tokens, int n)
{
    ek_turn *t;
    ek_turn_prompt p = {.ids = ids_of("<bos><|turn>user\nHi<turn|>\n<|turn>model\n"), .thinking = true};
    const ek_turn_resumed resumed = {.tokens = tokens, .n = n, .n_cached = 4};
    o.max_tokens = INT_MAX;
    if (n > 0) o.resumed = &resumed;
    *events = (ek_buf){0};
    assert_int_equal(ek_turn_open(&t, pocket(), &p, &o, on_event, events), EK_OK);
    ek_turn_prompt_fini(&p);
    return t;
}

static void take(ek_turn *t, int32_t token, ek_finish finish)
{
    const ek_turn_news n = {.token = token, .finish = finish, .n_prompt = 9, .n_cached = 7};
    ek_turn_feed(t, &n);
}

static void goes_on_behind_every_token(const scene *s)
{
    ek_buf want, got;
    ek_ids ids = ids_of(s->text);
    size_t at[256]; /* bytes of events in front of a token */
    ek_turn *whole = open_turn(&want, s->opts, NULL, 0);
    int n = 0;
    assert_true(ids.len < 256);
    for (; n < (int)ids.len && ek_turn_result_of(whole)->end == EK_END_NONE; n++) {
        at[n] = want.len;
        take(whole, ids.data[n], n + 1 == (int)ids.len ? EK_FINISH_LENGTH : EK_FINISH_NONE);
    }
    const ek_turn_result *w = ek_turn_result_of(whole);
    for (int k = 1; k <= n; k++) {
        ek_turn *t = open_turn(&got, s->opts, ids.data, k);
        for (int i = k - 1; i < n; i++) {
            if (i == k - 1)
                while (ek_turn_replay(t)) {
                }
            if (i == k - 1) assert_int_equal(got.len, at[i]); /* what the first turn gave in front of this token */
            take(t, ids.data[i], i + 1 == (int)ids.len ? EK_FINISH_LENGTH : EK_FINISH_NONE);
        }
        const ek_turn_result *r = ek_turn_result_of(t);
        assert_string_equal(ek_buf_text(&got), ek_buf_text(&want));
        assert_int_equal(r->end, w->end);
        assert_int_equal(r->n_tokens, w->n_tokens);
        assert_int_equal(r->n_reasoning, w->n_reasoning);
        assert_int_equal(r->n_malformed, w->n_malformed);
        assert_int_equal(r->n_cached, 4);
        assert_string_equal(ek_buf_text(&r->answer.content), ek_buf_text(&w->answer.content));
        assert_string_equal(ek_buf_text(&r->answer.reasoning), ek_buf_text(&w->answer.reasoning));
        ek_turn_close(t);
        ek_buf_fini(&got);
    }
    ek_turn_close(whole);
    ek_buf_fini(&want);
    ek_ids_fini(&ids);
}

static void a_cut_reply_goes_on_behind_every_token(void **state)
{
    static const char *const texts[] = {
        "A keel is \xf0\x9f\x9a\xa2 na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac.<turn|>",
        "<|channel>thought\nLet me see \xf0\x9f\x99\x82.<channel|>It is 7.<turn|>",
        "Wait.<|tool_call>call:f{a:<|\"|>x y<|\"|>,b:[1,true]}<tool_call|><|tool_call>call:g{}<tool_call|><turn|>",
        "<|tool_call>call:f{a:<|\"|>never clo",
        "<|tool_call>no call at all<tool_call|> but text",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        goes_on_behind_every_token(&(scene){texts[i], {.tools_active = true}});
        goes_on_behind_every_token(&(scene){texts[i], {.plain = true, .show_special = true}});
        goes_on_behind_every_token(&(scene){texts[i], {.tools_active = true, .logprobs = true}});
        goes_on_behind_every_token(
            &(scene){texts[i], {.tools_active = true, .n_stop = 2, .stop = {"keel is a", "7."}, .stop_len = {9, 2}}});
    }
}

static void ends_with(const char *given, int32_t next, const char *says)
{
    ek_buf events;
    ek_ids ids = ids_of(given);
    ek_turn *t = open_turn(&events, (ek_turn_opts){.tools_active = true}, ids.data, (int)ids.len);
    take(t, next, EK_FINISH_NONE);
    const ek_turn_result *r = ek_turn_result_of(t);
    assert_int_equal(r->end, EK_END_ERROR);
    assert_int_equal(r->err, EK_EINVAL);
    assert_non_null(strstr(r->error, says));
    ek_turn_close(t);
    ek_buf_fini(&events);
    ek_ids_fini(&ids);
}

static void what_cannot_go_on_says_so(void **state)
{
    (void)state;
    ends_with("A keel", 5, "is 5 here and was ");
    ends_with("A keel.<turn|>\nAnd", 5, "the reply ended with its token ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_reply_goes_on_behind_every_token),
        cmocka_unit_test(what_cannot_go_on_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
