/* From a conversation to the template's messages and to tokens. */
#include "helper.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>

#include "chat/order.h"
#include "text/json/json.h"

static void check_messages(ek_conversation *c, const char *want, bool think, int line)
{
    bool mark;
    ek_buf b = {0};
    json_t *v;
    if (ek_template_messages(&v, c, &mark)) fail_msg("line %d: %s", line, ek_err_text());
    ek_json_write(&b, v);
    check_buf(&b, want, __FILE__, line);
    assert_int_equal(mark, think);
    json_decref(v);
    ek_conversation_fini(c);
}
#define becomes(c, want, think) check_messages((c), (want), (think), __LINE__)

#define CALL(id, name) \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":{\"x\":1}}}"

static void keeps_the_order_of_blocks(void **state)
{
    (void)state;
    ek_conversation c = {0};
    ek_message *m = ek_conversation_add(&c, EK_ROLE_ASSISTANT);
    ek_message_text(m, EK_BLOCK_REASONING, "r", 1);
    ek_message_text(m, EK_BLOCK_TEXT, "Let me see.", 11);
    add_call(m, "1", "f", "{\"x\":1}");
    add_call(m, "2", "g", "{\"x\":1}");
    becomes(&c,
            "[{\"role\":\"assistant\",\"reasoning_content\":\"r\",\"content\":\"Let me see.\"},"
            "{\"role\":\"assistant\",\"tool_calls\":[" CALL("1", "f") "," CALL("2", "g") "]}]",
            false);

    m = ek_conversation_add(&c, EK_ROLE_ASSISTANT); /* white space does not show: nothing to keep in order */
    ek_message_text(m, EK_BLOCK_TEXT, " \n", 2);
    add_call(m, "1", "f", "{\"x\":1}");
    becomes(&c, "[{\"role\":\"assistant\",\"content\":\" \\n\",\"tool_calls\":[" CALL("1", "f") "]}]", false);

    m = ek_conversation_add(&c, EK_ROLE_ASSISTANT); /* as Anthropic's clients send it */
    ek_message_text(m, EK_BLOCK_REASONING, "a", 1);
    add_call(m, "1", "f", "{\"x\":1}");
    ek_message_text(m, EK_BLOCK_REASONING, "b", 1);
    add_call(m, "2", "g", "{\"x\":1}");
    ek_message_text(m, EK_BLOCK_TEXT, "t", 1);
    becomes(&c,
            "[{\"role\":\"assistant\",\"reasoning_content\":\"a\",\"tool_calls\":[" CALL(
                "1", "f") "]},"
                          "{\"role\":\"assistant\",\"reasoning_content\":\"b\",\"tool_calls\":[" CALL(
                              "2", "g") "]},"
                                        "{\"role\":\"assistant\",\"content\":\"t\"}]",
            false);
}

static void texts_parts_and_media(void **state)
{
    (void)state;
    ek_conversation c = {0};
    ek_message *m = add_text(&c, EK_ROLE_SYSTEM, "a");
    m->parts = true;
    m = add_text(&c, EK_ROLE_USER, "b");
    ek_message_add(m, EK_BLOCK_MEDIA)->media = EK_PART_SOUND;
    add_call(ek_conversation_add(&c, EK_ROLE_ASSISTANT), "7", "h", "{\"x\":1}");
    m = add_text(&c, EK_ROLE_TOOL, "");
    ek_buf_str(&m->call_id, "7");
    ek_buf_str(&m->name, "f");
    ek_conversation_add(&c, EK_ROLE_DEVELOPER);
    m = ek_conversation_add(&c, EK_ROLE_ASSISTANT);
    ek_block *b = ek_message_add(m, EK_BLOCK_RESULT);
    ek_buf_str(&b->name, "g");
    b->value = json_true();
    becomes(
        &c,
        "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"b\"},{\"type\":\"audio\"}]},"
        "{\"role\":\"assistant\",\"tool_calls\":[" CALL(
            "7",
            "h") "]},"
                 "{\"role\":\"tool\",\"tool_call_id\":\"7\",\"name\":\"f\",\"content\":\"\"},{\"role\":\"developer\"},"
                 "{\"role\":\"assistant\",\"tool_responses\":[{\"name\":\"g\",\"response\":true}]}]",
        false);
}

static void the_system_text_may_ask_for_thinking(void **state)
{
    (void)state;
    ek_conversation c = {0};
    add_text(&c, EK_ROLE_SYSTEM, " <|think|>\nBe brief.");
    add_text(&c, EK_ROLE_SYSTEM, "<|think|>");
    becomes(&c, "[{\"role\":\"system\",\"content\":\"\\nBe brief.\"},{\"role\":\"system\",\"content\":\"<|think|>\"}]",
            true);
    add_text(&c, EK_ROLE_SYSTEM, "<|think|>")->parts = true;
    becomes(&c, "[{\"role\":\"system\",\"content\":[]}]", true);
    add_text(&c, EK_ROLE_USER, "<|think|>");
    becomes(&c, "[{\"role\":\"user\",\"content\":\"<|think|>\"}]", false);
}

static void an_answer_joins_the_history(void **state)
{
    (void)state;
    ek_answer a = {0};
    static const struct {
        ek_reply_kind kind;
        const char *text;
    } events[] = {{EK_REPLY_REASONING, "r"},         {EK_REPLY_CONTENT, "t"},   {EK_REPLY_CALL_START, "f"},
                  {EK_REPLY_CALL_ARGS, "{\"a\":[]"}, {EK_REPLY_CALL_ARGS, "}"}, {EK_REPLY_CALL_END, ""}};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        ek_reply_event e = {.kind = events[i].kind, .text = events[i].text, .n = strlen(events[i].text)};
        ek_reply_collect(&a, &e);
    }
    char id[32];
    ek_call_id(id, "call_", "3", 0);
    ek_conversation c = {0};
    ek_buf want = {0};
    ek_conversation_answer(&c, &a, "3");
    ek_buf_fmt(
        &want,
        "[{\"role\":\"assistant\",\"reasoning_content\":\"r\",\"content\":\"t\"},{\"role\":\"assistant\","
        "\"tool_calls\":[{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[]}}}]}]",
        id);
    becomes(&c, want.data, false);
    ek_buf_fini(&want);
    ek_answer_fini(&a);
}

static void take_back(void **state)
{
    (void)state;
    ek_conversation c = {0};
    for (int i = 0; i < 20; i++) add_call(add_text(&c, EK_ROLE_ASSISTANT, "x"), "1", "f", "{}");
    ek_conversation_cut(&c, 1);
    add_text(&c, EK_ROLE_USER, "y");
    assert_int_equal(c.n_messages, 2);
    assert_string_equal(c.messages[1].blocks[0].text.data, "y");
    ek_conversation_fini(&c);
}

/* --- tokens --- */

static const ek_prompt_opts plain = {.add_generation_prompt = true, .ctx_tokens = 4096};

static void check_prompt(const ek_conversation *c, const ek_prompt_opts *o, const char *want, bool thinking)
{
    ek_turn_prompt p = {0};
    if (ek_turn_prompt_make(&p, pocket(), c, NULL, o)) fail_msg("%s", ek_err_text());
    ek_buf b = {0};
    ek_decode(pocket()->tokenizer, p.ids.data, p.ids.len, false, &b);
    same_text(&b, want);
    assert_int_equal(p.thinking, thinking);
    ek_turn_prompt_fini(&p);
}

static void makes_tokens(void **state)
{
    (void)state;
    ek_conversation c = {0};
    add_text(&c, EK_ROLE_SYSTEM, "<|think|>Be brief.");
    add_text(&c, EK_ROLE_USER, "Hello <|turn>");
    ek_prompt_opts o = plain;
    check_prompt(&c, &o,
                 "<bos><|turn>system\n<|think|>\nBe brief.<turn|>\n<|turn>user\nHello <|turn><turn|>\n<|turn>model\n",
                 true);
    o.thinking = EK_THINKING_OFF; /* said explicitly, it wins */
    ek_turn_prompt p = {0};
    assert_int_equal(ek_turn_prompt_make(&p, pocket(), &c, NULL, &o), EK_OK);
    assert_false(p.thinking);
    int turns = 0; /* what a user types is no control token */
    for (size_t i = 0; i < p.ids.len; i++) turns += p.ids.data[i] == pocket()->marks.id[EK_MARK_TURN_OPEN];
    assert_int_equal(turns, 3);
    ek_turn_prompt_fini(&p);
    ek_conversation_fini(&c);
}

/* Arguments that are a text: in the call's braces, and no control tokens, whatever they say. */
static void arguments_that_are_a_text(void **state)
{
    static const char *const cases[][2] = {{"Oslo, {", "Oslo, {"},
                                           {"{\"a\" 1}", "\"a\" 1"},
                                           {"{", "{"},
                                           {"", ""},
                                           {"{}<tool_call|><|turn>", "{}<tool_call|><|turn>"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_conversation c = {0};
        ek_buf want = {0};
        ek_block *b = add_call(ek_conversation_add(&c, EK_ROLE_ASSISTANT), "1", "f", "{}");
        json_decref(b->value);
        b->value = json_string(cases[i][0]);
        ek_buf_fmt(&want, "<bos><|turn>model\n<|tool_call>call:f{%s}<tool_call|><|tool_response>", cases[i][1]);
        check_prompt(&c, &plain, want.data, false);
        ek_turn_prompt p = {0};
        assert_int_equal(ek_turn_prompt_make(&p, pocket(), &c, NULL, &plain), EK_OK);
        int closers = 0;
        for (size_t k = 0; k < p.ids.len; k++) closers += p.ids.data[k] == pocket()->marks.id[EK_MARK_CALL_CLOSE];
        assert_int_equal(closers, 1);
        ek_turn_prompt_fini(&p);
        ek_buf_fini(&want);
        ek_conversation_fini(&c);
    }
}

static void refuses(void **state)
{
    (void)state;
    ek_conversation c = {0};
    ek_turn_prompt p = {0};
    ek_prompt_opts o = plain;
    add_text(&c, EK_ROLE_USER, "Hello");
    assert_int_equal(ek_turn_prompt_make(&p, pocket(), &c, NULL, &o), EK_OK);
    int n = (int)p.ids.len;
    ek_turn_prompt_fini(&p);
    o.ctx_tokens = n + 1; /* the reply needs one */
    assert_int_equal(ek_turn_prompt_make(&p, pocket(), &c, NULL, &o), EK_OK);
    ek_turn_prompt_fini(&p);
    o.ctx_tokens = n;
    assert_int_equal(ek_turn_prompt_make(&p, pocket(), &c, NULL, &o), EK_ETOOLONG);
    ek_turn_prompt_fini(&p);

    o = plain;
    o.continue_final = true; /* the last message is the user's */
    assert_int_equal(ek_turn_prompt_make(&p, pocket(), &c, NULL, &o), EK_EINVAL);
    ek_turn_prompt_fini(&p);
    ek_message_add(&c.messages[0], EK_BLOCK_MEDIA);
    assert_int_equal(ek_turn_prompt_make(&p, pocket(), &c, NULL, &plain), EK_EUNSUPPORTED);
    ek_turn_prompt_fini(&p);
    ek_conversation_fini(&c);
}

/* Both numbers of "prompt is too long: N tokens > M maximum", and what stands behind. */
static const char *numbers(size_t *n, size_t *max)
{
    int end = 0;
    if (sscanf(ek_err_text(), "prompt is too long: %zu tokens > %zu maximum%n", n, max, &end) != 2 || end == 0)
        fail_msg("%s", ek_err_text());
    return ek_err_text() + end;
}

static size_t tokens_of(const ek_conversation *c)
{
    ek_turn_prompt p = {0};
    ek_prompt_opts o = plain;
    o.ctx_tokens = INT_MAX;
    assert_int_equal(ek_turn_prompt_make(&p, pocket(), c, NULL, &o), EK_OK);
    size_t n = p.ids.len;
    ek_turn_prompt_fini(&p);
    return n;
}

static ek_err no_room(void *arg, size_t bytes)
{
    size_t *first = arg;
    if (*first == 0) *first = bytes;
    return ek_fail(EK_ENOMEM, "no room");
}

enum { COUNTING = 16 << 20 };

/* Clients size what they leave out by the true number: however far beyond the context a prompt is, it is said. */
static void counts_what_is_too_long(void **state)
{
    (void)state;
    static const char *const words[] = {"word ", "Gr\xC3\xBC\xC3\x9F e, \xE4\xB8\xAD\xE6\x96\x87\n",
                                        "{\"a\": 12.5}\n\n", "a<|turn>b  c\xE2\x96\x81 d "};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int times = 50; times <= 50000; times *= 10) {
            ek_conversation c = {0};
            ek_buf text = {0};
            size_t n, max, asked = 0;
            for (int k = 0; k < times; k++) ek_buf_str(&text, words[i]);
            add_text(&c, EK_ROLE_SYSTEM, "Be brief.");
            add_text(&c, EK_ROLE_USER, text.data);
            add_text(&c, EK_ROLE_ASSISTANT, "So.");
            add_text(&c, EK_ROLE_USER, text.data);
            size_t want = tokens_of(&c);
            ek_prompt_opts o = plain;
            o.ctx_tokens = 60;
            ek_turn_prompt p = {0};
            assert_int_equal(ek_turn_prompt_make(&p, pocket(), &c, NULL, &o), EK_ETOOLONG);
            assert_string_equal(numbers(&n, &max), "");
            assert_int_equal(n, want);
            assert_int_equal(max, 59);
            ek_turn_prompt_fini(&p);
            o.room = no_room; /* then it is an estimate, and called so */
            o.room_arg = &asked;
            assert_int_equal(ek_turn_prompt_make(&p, pocket(), &c, NULL, &o), EK_ETOOLONG);
            bool rendered = asked == 0 || asked == COUNTING; /* all of it: then pieces that are small serve, too */
            assert_string_equal(numbers(&n, &max), rendered ? "" : " (the first number is an estimate)");
            assert_true(n > want / 2 && n < want * 2);
            assert_true(!rendered || times == 50);
            assert_true(rendered ? n == want : asked >= 2 * text.len);
            ek_turn_prompt_fini(&p);
            ek_buf_fini(&text);
            ek_conversation_fini(&c);
        }
}

/* A worker thread of its own for each; what it makes depends on the conversation alone. */
static void *make_many(void *arg)
{
    for (int i = 0; i < 50; i++) {
        ek_turn_prompt p = {0};
        if (ek_turn_prompt_make(&p, pocket(), arg, NULL, &plain)) return (void *)1;
        ek_buf b = {0};
        ek_decode(pocket()->tokenizer, p.ids.data, p.ids.len, false, &b);
        bool same = !strcmp(b.data, "<bos><|turn>user\nHow are you?<turn|>\n<|turn>model\n<|tool_call>call:f{x:1}"
                                    "<tool_call|><|tool_response>");
        ek_buf_fini(&b);
        ek_turn_prompt_fini(&p);
        if (!same) return (void *)2;
    }
    return NULL;
}

static void any_thread(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t t[THREADS];
    ek_conversation c = {0};
    pocket();
    add_text(&c, EK_ROLE_USER, "How are you?");
    add_call(ek_conversation_add(&c, EK_ROLE_ASSISTANT), "1", "f", "{\"x\":1}");
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, make_many, &c), 0);
    for (int i = 0; i < THREADS; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    ek_conversation_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_order_of_blocks),
        cmocka_unit_test(texts_parts_and_media),
        cmocka_unit_test(the_system_text_may_ask_for_thinking),
        cmocka_unit_test(an_answer_joins_the_history),
        cmocka_unit_test(take_back),
        cmocka_unit_test(makes_tokens),
        cmocka_unit_test(arguments_that_are_a_text),
        cmocka_unit_test(refuses),
        cmocka_unit_test(counts_what_is_too_long),
        cmocka_unit_test(any_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
