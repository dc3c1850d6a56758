#include "helper.h"

#include <math.h>
#include <stdlib.h>

static void check_round(const char *in, const char *want)
{
    json_t *v = read_json(in);
    ek_buf b = {0};
    ek_json_write(&b, v);
    check_buf(&b, want);
    ek_buf_fini(&b);
    json_decref(v);
}

static void keeps_valid_input(void **state)
{
    (void)state;
    check_round(" { \"b\" : [ 1 , -2 , 2.5 , true , false , null ] , \"a\" : \"x\" } ",
                "{\"b\":[1,-2,2.5,true,false,null],\"a\":\"x\"}");
    check_round("[1,1.0,1e5,-0,-0.0,1E-7]", "[1,1.0,100000.0,0,-0.0,1e-07]");
    check_round("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\ud83d\\ude80\"",
                "\"\\\"\\\\/\\b\\f\\n\\r\\tA\xC3\xA9\xF0\x9F\x9A\x80\"");
    check_round("[9223372036854775807,9223372036854775808,-9223372036854775809,123456789012345678901234567890]",
                "[9223372036854775807,9223372036854775808,-9223372036854775809,123456789012345678901234567890]");
    check_round("{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"b\":2}");
    check_round("{}", "{}");
    check_round("\xEF\xBB\xBF[]", "[]");
}

/* What API clients and models write: the strict reader refuses each, the lenient one repairs it. */
static void repairs_only_if_asked(void **state)
{
    (void)state;
    static const struct {
        const char *in, *repaired, *refused;
    } cases[] = {
        {"\"\\s\\d+\\\\s\\\\d\"", "\"\\\\s\\\\d+\\\\s\\\\d\"", "line 1 column 2: no such escape"},
        {"\"\\\\\\d\"", "\"\\\\\\\\d\"", "line 1 column 4: no such escape"},
        {"\"\\u12g4 \\u\"", "\"\\\\u12g4 \\\\u\"", "line 1 column 2: \\u without four"},
        {"\"a\tb\nc\x01\"", "\"a\\tb\\nc\\u0001\"", "line 1 column 3: a control character"},
        {"\"\xC3(\xFF\"", "\"\xEF\xBF\xBD(\xEF\xBF\xBD\"", "line 1 column 2: this part of a string is not UTF-8"},
        {"{\"\\d\":1}", "{\"\\\\d\":1}", "line 1 column 3: no such escape"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *v;
        ek_buf b = {0};
        assert_int_equal(ek_json_read_lenient(&v, cases[i].in, strlen(cases[i].in), 0), EK_OK);
        ek_json_write(&b, v);
        check_buf(&b, cases[i].repaired);
        ek_buf_fini(&b);
        json_decref(v);
        assert_int_equal(ek_json_read(&v, cases[i].in, strlen(cases[i].in), 0), EK_EPARSE);
        assert_null(v);
        if (!strstr(ek_err_text(), cases[i].refused)) fail_msg("%s: %s", cases[i].in, ek_err_text());
    }
    check_round("\"\\ud800 \\udc00 \\ud83d\\u0041\"", "\""
                                                      "\xEF\xBF\xBD \xEF\xBF\xBD \xEF\xBF\xBD"
                                                      "A\"");
}

static void keeps_nul(void **state)
{
    (void)state;
    json_t *v = read_json("{\"a\\u0000b\":\"x\\u0000\"}");
    const json_t *x = json_object_getn(v, "a\0b", 3);
    assert_non_null(x);
    assert_int_equal(json_string_length(x), 2);
    json_decref(v);
    check_round("{\"a\\u0000b\":\"x\\u0000\"}", "{\"a\\u0000b\":\"x\\u0000\"}");
}

static void odd_numbers_are_no_text(void **state)
{
    (void)state;
    json_t *v = read_json("{\"n\":99999999999999999999,\"inf\":1e400,\"nan\":NaN,\"s\":\"t\"}");
    assert_null(ek_json_get_text(v, "n", NULL));
    assert_string_equal(ek_json_odd_number(ek_json_get(v, "n")), "99999999999999999999");
    assert_string_equal(ek_json_odd_number(ek_json_get(v, "inf")), "inf");
    assert_null(ek_json_odd_number(ek_json_get(v, "s")));
    assert_string_equal(ek_json_get_text(v, "s", NULL), "t");
    assert_null(ek_json_get(v, "absent"));
    json_decref(v);
    check_round("[1e400,-1e400,NaN,-Infinity]", "[1e999,-1e999,null,-1e999]");
}

static void says_where(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } cases[] = {{"", "line 1 column 1: the text ends where a value is expected"},
                 {"{\"a\" 1}", "line 1 column 6: expected ':' after a key"},
                 {"{\n \"a\":1,}", "line 2 column 8: expected a key in quotes"},
                 {"[1 2]", "line 1 column 4: expected ',' or ']' in an array"},
                 {"[1,\n\n\"abc]", "line 3 column 1: this string has no closing quote"},
                 {"[01]", "line 1 column 2: malformed number"},
                 {"1.", "line 1 column 1: malformed number"},
                 {"-", "line 1 column 1: malformed number"},
                 {"1e+", "line 1 column 1: malformed number"},
                 {"nul", "line 1 column 1: expected a value"},
                 {"[] []", "line 1 column 4: text after the value"},
                 {"'a'", "expected a value"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *v;
        assert_int_equal(ek_json_read(&v, cases[i].in, strlen(cases[i].in), 0), EK_EPARSE);
        assert_null(v);
        if (!strstr(ek_err_text(), cases[i].want)) fail_msg("%s: %s", cases[i].in, ek_err_text());
    }
}

static void has_limits(void **state)
{
    (void)state;
    json_t *v;
    char deep[2 * EK_JSON_DEPTH + 8];
    for (int levels = EK_JSON_DEPTH; levels <= EK_JSON_DEPTH + 1; levels++) {
        memset(deep, '[', (size_t)levels);
        memset(deep + levels, ']', (size_t)levels);
        ek_err e = ek_json_read(&v, deep, (size_t)levels * 2, 0);
        assert_int_equal(e, levels <= EK_JSON_DEPTH ? EK_OK : EK_ETOOLARGE);
        json_decref(v);
    }
    assert_int_equal(ek_json_read(&v, "[1,2]", 5, 4), EK_ETOOLARGE);
    assert_int_equal(ek_json_read(&v, "[12]", 4, 4), EK_OK);
    json_decref(v);
}

static void prints_doubles_like_python(void **state)
{
    (void)state;
    static const struct {
        double x;
        const char *want;
    } cases[] = {{0, "0.0"},
                 {-0.0, "-0.0"},
                 {1, "1.0"},
                 {0.1, "0.1"},
                 {1.0 / 3, "0.3333333333333333"},
                 {1e15, "1000000000000000.0"},
                 {1e16, "1e+16"},
                 {123456789012345680.0, "1.2345678901234568e+17"},
                 {0.0001, "0.0001"},
                 {0.00001, "1e-05"},
                 {0.00012345, "0.00012345"},
                 {5e-324, "5e-324"},
                 {1.7976931348623157e308, "1.7976931348623157e+308"},
                 {1e22, "1e+22"},
                 {9007199254740993.0, "9007199254740992.0"},
                 {-2.5e-7, "-2.5e-07"},
                 {1e100, "1e+100"},
                 {INFINITY, "inf"},
                 {-INFINITY, "-inf"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_buf b = {0};
        ek_json_double(&b, cases[i].x);
        check_buf(&b, cases[i].want);
        ek_buf_fini(&b);
    }
    dice d = {.seed = 7};
    for (int i = 0; i < 20000; i++) {
        union {
            uint64_t u;
            double x;
        } v = {.u = (uint64_t)roll(&d, 1u << 31) << 33 ^ (uint64_t)roll(&d, 1u << 31) << 10 ^ roll(&d, 1024)};
        if (!isfinite(v.x)) continue;
        ek_buf b = {0};
        ek_json_double(&b, v.x);
        assert_true(strtod(b.data, NULL) == v.x);
        ek_buf_fini(&b);
    }
}

static void escapes_only_what_must_be(void **state)
{
    (void)state;
    ek_buf b = {0};
    static const char s[] = "a\"\\\x01\x1f\x7f/<é\xE2\x80\xA8\xFF";
    ek_json_quote(&b, s, sizeof s - 1);
    check_buf(&b, "\"a\\\"\\\\\\u0001\\u001f\x7f/<é\xE2\x80\xA8\xEF\xBF\xBD\"");
    ek_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_valid_input),
                                       cmocka_unit_test(repairs_only_if_asked),
                                       cmocka_unit_test(keeps_nul),
                                       cmocka_unit_test(odd_numbers_are_no_text),
                                       cmocka_unit_test(says_where),
                                       cmocka_unit_test(has_limits),
                                       cmocka_unit_test(prints_doubles_like_python),
                                       cmocka_unit_test(escapes_only_what_must_be)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
