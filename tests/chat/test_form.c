/* The form of a reply as text: the grammar made of it is the one it was written from, for every kind of form. */
#include "helper.h"

#include <string.h>

#include "chat/bounds.h"
#include "text/grammar/grammar_state.h"
#include "text/json/json.h"

static json_t *json(const char *text)
{
    json_t *v = NULL;
    assert_int_equal(ek_json_read(&v, text, strlen(text), 0), EK_OK);
    return v;
}

static const char *const tools[] = {
    "[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":\"long\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"]}}},{\"type\":\"function\",\"function\":{\"name\":"
    "\"b\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":{\"y\":{\"enum\":[\"\\u0000 \\\"\",1.5]}}}}}]",
    "[{\"type\":\"function\",\"function\":{\"name\":\"c\",\"strict\":false,\"parameters\":{\"not\":{}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"d\"}}]",
};
static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"pattern\":\"^[a-z\\u00e9]+$\",\"maxLength\":9}},"
    "\"required\":[\"s\"]}",
    "{\"type\":\"number\",\"minimum\":0.1,\"maximum\":1e3,\"not\":{}}",
};

/* The grammar that is made directly, and through the text. False: none is made. */
static bool same_both_ways(const ek_chat_model *m, const ek_reply_form *form, const json_t *declared, bool one_call)
{
    ek_grammar *direct = NULL, *again = NULL;
    ek_buf text = {0};
    ek_err err = ek_grammar_open(&direct, m->vocab, form, declared, one_call);
    ek_form_write(&text, form, declared, one_call);
    assert_int_equal(ek_form_grammar(&again, m->vocab, text.data, text.len), err);
    bool made = direct != NULL;
    assert_true(made == (again != NULL));
    if (made) assert_string_equal(direct->id, again->id);
    ek_grammar_close(direct);
    ek_grammar_close(again);
    ek_buf_fini(&text);
    return made;
}

static void the_same_grammar_comes_back(void **state)
{
    const ek_chat_model *m = pocket();
    (void)state;
    json_t *only = json("[\"b\",\"d\"]"), *choices = json("[\"a\",\"ab\",\"\\u00e9\"]");
    int n_made = 0;
    for (int i = 0; i < 3 * 3 * 4 * 16; i++) {
        json_t *declared = i % 3 ? json(tools[i % 3 - 1]) : NULL, *schema = json(schemas[i / 3 % 2]);
        ek_reply_form form = {.text = (ek_text_form)(i / 9 % 4),
                              .schema = i / 9 % 4 == EK_TEXT_JSON_SCHEMA ? schema
                                        : i / 9 % 4 == EK_TEXT_CHOICE    ? choices
                                                                         : NULL,
                              .lenient = i / 36 & 1,
                              .calls_required = i / 36 & 2,
                              .only = i / 36 & 4 ? only : NULL};
        n_made += same_both_ways(m, &form, declared, i / 36 & 8);
        json_decref(declared);
        json_decref(schema);
    }
    assert_true(n_made > 100);
    json_decref(only);
    json_decref(choices);
}

static void other_texts_are_refused(void **state)
{
    const ek_chat_model *m = pocket();
    (void)state;
    static const char *const wrong[] = {
        "", "[]", "{}", "{\"text\":\"prose\"}", "{\"text\":\"json_schema\"}", "{\"text\":1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ek_grammar *g = NULL;
        assert_int_not_equal(ek_form_grammar(&g, m->vocab, wrong[i], strlen(wrong[i])), EK_OK);
        assert_null(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_grammar_comes_back),
                                       cmocka_unit_test(other_texts_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
