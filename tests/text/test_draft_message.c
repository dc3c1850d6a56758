/* Questions for drafts and their answers: what is written is read, and nothing else. */
#include "helper.h"

#include "text/draft_message.h"

enum { VOCABULARY = 300, ROOM = 100 };

static int32_t room[ROOM];

static ek_err read_question(ek_draft_question *q, const char *text)
{
    *q = (ek_draft_question){.tokens = room};
    return ek_draft_question_read(q, text, strlen(text), ROOM, VOCABULARY);
}

static void a_question_that_is_written_is_read(void **state)
{
    int32_t tokens[] = {0, 17, 299};
    const ek_draft_question q = {.vocabulary = "0123456789abcdef",
                                 .session = "5e",
                                 .salt = "ff",
                                 .from = 70000,
                                 .max = 64,
                                 .tokens = tokens,
                                 .n = 3};
    ek_draft_question got;
    ek_buf b = {0};
    (void)state;
    ek_draft_question_write(&b, &q);
    assert_string_equal(b.data,
                        "{\"vocabulary\":\"0123456789abcdef\",\"session\":\"5e\",\"salt\":\"ff\",\"from\":70000,"
                        "\"max\":64,\"tokens\":[0,17,299]}");
    assert_int_equal(read_question(&got, b.data), EK_OK);
    assert_string_equal(got.vocabulary, q.vocabulary);
    assert_string_equal(got.session, q.session);
    assert_string_equal(got.salt, q.salt);
    assert_int_equal(got.from, 70000);
    assert_int_equal(got.max, 64);
    assert_int_equal(got.n, 3);
    assert_memory_equal(got.tokens, tokens, sizeof tokens);
    ek_buf_fini(&b);
}

static void members_have_any_order_and_white_space(void **state)
{
    ek_draft_question q;
    (void)state;
    assert_int_equal(
        read_question(&q, " { \"tokens\" : [ 1 , 2 ] ,\n\"max\":1,\"session\":\"a\",\"vocabulary\":\"b\"}\t"), EK_OK);
    assert_int_equal(q.n, 2);
    assert_int_equal(q.from, 0);
    assert_string_equal(q.salt, "");
}

#define QUESTION(more) "{\"vocabulary\":\"b\",\"session\":\"a\",\"max\":1," more "}"

static void what_is_no_question_is_refused(void **state)
{
    static const struct {
        const char *text;
        ek_err err;
    } rows[] = {
        {"", EK_EPARSE},
        {"[]", EK_EPARSE},
        {"{}", EK_EPARSE},
        {QUESTION("\"tokens\":[300]"), EK_EPARSE},
        {QUESTION("\"tokens\":[-1]"), EK_EPARSE},
        {QUESTION("\"tokens\":[1.0]"), EK_EPARSE},
        {QUESTION("\"tokens\":[01]"), EK_EPARSE},
        {QUESTION("\"tokens\":[1,]"), EK_EPARSE},
        {QUESTION("\"tokens\":[1],\"tokens\":[1]"), EK_EPARSE},
        {QUESTION("\"tokens\":[1],\"other\":1"), EK_EPARSE},
        {QUESTION("\"tokens\":[99999999999]"), EK_EPARSE},
        {QUESTION("\"tokens\":[1],\"salt\":\"G\""), EK_EPARSE},
        {QUESTION("\"tokens\":[1],\"salt\":\"01234567890123456\""), EK_EPARSE},
        {QUESTION("\"tokens\":[1]") "x", EK_EPARSE},
        {QUESTION("\"tokens\":[]"), EK_EINVAL},
        {"{\"vocabulary\":\"b\",\"session\":\"a\",\"tokens\":[1]}", EK_EINVAL},
        {"{\"vocabulary\":\"b\",\"max\":1,\"tokens\":[1]}", EK_EINVAL},
    };
    ek_draft_question q;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (read_question(&q, rows[i].text) != rows[i].err) fail_msg("%s: not refused so", rows[i].text);
}

static void more_tokens_than_there_is_room_for_are_too_long(void **state)
{
    ek_draft_question q;
    ek_buf b = {0};
    (void)state;
    for (int n = ROOM; n <= ROOM + 1; n++) {
        ek_buf_clear(&b);
        ek_buf_str(&b, "{\"vocabulary\":\"b\",\"session\":\"a\",\"max\":1,\"tokens\":[");
        for (int i = 0; i < n; i++) ek_buf_str(&b, i ? ",1" : "1");
        ek_buf_str(&b, "]}");
        assert_int_equal(read_question(&q, b.data), n > ROOM ? EK_ETOOLONG : EK_OK);
    }
    ek_buf_fini(&b);
}

static int read_answer(const char *text)
{
    static int32_t out[EK_DRAFT_MESSAGE_MAX];
    return ek_draft_answer_read(out, text, strlen(text), VOCABULARY);
}

static void an_answer_has_tokens_of_the_vocabulary_alone(void **state)
{
    static const char *const wrong[] = {
        "",
        "{}",
        "null",
        "{\"object\":\"draft\"}",
        "{\"tokens\":[1]}",
        "{\"object\":\"other\",\"tokens\":[1]}",
        "{\"object\":\"draft\",\"tokens\":[300]}",
        "{\"object\":\"draft\",\"tokens\":[-1]}",
        "{\"object\":\"draft\",\"tokens\":[1]}}",
        "{\"object\":\"draft\",\"object\":\"draft\",\"tokens\":[1]}",
        "{\"object\":\"draft\",\"tokens\":[1],\"tokens\":[1]}",
    };
    int32_t tokens[EK_DRAFT_MESSAGE_MAX + 1] = {5}, got[EK_DRAFT_MESSAGE_MAX];
    ek_buf b = {0};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (read_answer(wrong[i]) != -1) fail_msg("%s: not refused", wrong[i]);
    for (int n = 0; n <= EK_DRAFT_MESSAGE_MAX + 1; n++) {
        ek_buf_clear(&b);
        ek_draft_answer_write(&b, tokens, n);
        assert_int_equal(ek_draft_answer_read(got, b.data, b.len, VOCABULARY), n > EK_DRAFT_MESSAGE_MAX ? -1 : n);
    }
    while (b.len <= EK_DRAFT_ANSWER_BYTES) ek_buf_char(&b, ' ');
    ek_draft_answer_write(&b, tokens, 1);
    assert_int_equal(ek_draft_answer_read(got, b.data, b.len, VOCABULARY), -1);
    ek_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_that_is_written_is_read),
        cmocka_unit_test(members_have_any_order_and_white_space),
        cmocka_unit_test(what_is_no_question_is_refused),
        cmocka_unit_test(more_tokens_than_there_is_room_for_are_too_long),
        cmocka_unit_test(an_answer_has_tokens_of_the_vocabulary_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
