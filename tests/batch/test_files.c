/* A batch's files: the index of the input, the part that a killed run leaves, what is compared afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "batch/batch.h"
#include "../support/files.h"

static char *folder;

static void put(const char *name, const char *bytes, size_t n)
{
    assert_int_equal(ek_file_replace(path_in(folder, name), bytes, n, 0644), EK_OK);
}

static void expect(const char *name, const char *text)
{
    ek_buf b = {0};
    assert_int_equal(ek_file_read(&b, path_in(folder, name), 1 << 20), EK_OK);
    assert_string_equal(ek_buf_text(&b), text);
    ek_buf_fini(&b);
}

/* --- the input --- */

static void lines_are_found_whatever_ends_them(void **state)
{
    static const char text[] = "\xEF\xBB\xBFone\r\n\n  \t\r\ntwo\r\r\n three \nlast";
    static const struct {
        const char *line;
        uint64_t number;
    } want[] = {{"one", 1}, {"two\r", 4}, {" three ", 5}, {"last", 6}};
    ek_batch_input in;
    ek_buf b = {0};
    (void)state;
    put("in", text, sizeof text - 1);
    assert_int_equal(ek_batch_input_open(&in, path_in(folder, "in"), false), EK_OK);
    assert_int_equal(in.n, 4);
    for (size_t i = 0; i < in.n; i++) {
        assert_int_equal(ek_batch_input_line(&in, i, &b), EK_OK);
        assert_string_equal(b.data, want[i].line);
        assert_int_equal(in.lines[i].number, want[i].number);
    }
    put("in", "another", 7); /* a new file: the one that is open stays as it is */
    assert_int_equal(ek_batch_input_line(&in, 0, &b), EK_OK);
    ek_batch_input_close(&in);
    assert_int_equal(ek_batch_input_open(&in, path_in(folder, "in"), false), EK_OK);
    FILE *f = fopen(path_in(folder, "in"), "r+");
    fputs("anxther", f); /* in place */
    fclose(f);
    assert_int_equal(ek_batch_input_line(&in, 0, &b), EK_EIO);
    assert_non_null(strstr(ek_err_text(), "line 1 is no longer as it was"));
    ek_batch_input_close(&in);
    ek_buf_fini(&b);
}

/* Cuts of what read() returns must not matter: the lines of a file that is larger than a part of it. */
static void large_inputs_have_the_same_lines(void **state)
{
    ek_buf b = {0}, line = {0};
    ek_batch_input in;
    (void)state;
    for (int i = 0; i < 60000; i++)
        ek_buf_fmt(&b, "{\"custom_id\":\"%d\",\"x\":\"%.*s\"}\r\n", i, i % 40,
                   "........................................");
    assert_true(b.len > 2 << 20);
    put("in", b.data, b.len);
    assert_int_equal(ek_batch_input_open(&in, path_in(folder, "in"), true), EK_OK);
    assert_int_equal(in.n, 60000);
    for (size_t i = 0; i < in.n; i += 777) {
        char want[128];
        snprintf(want, sizeof want, "{\"custom_id\":\"%zu\",\"x\":\"%.*s\"}", i, (int)(i % 40),
                 "........................................");
        assert_int_equal(ek_batch_input_line(&in, i, &line), EK_OK);
        assert_string_equal(line.data, want);
    }
    ek_batch_input_close(&in);
    ek_buf_str(&b, "{\"custom_id\":\"59999\"}\n{\"custom_id\":\"7\"}");
    put("in", b.data, b.len);
    assert_int_equal(ek_batch_input_open(&in, path_in(folder, "in"), true), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "custom_id \"59999\" is on line 60000 and on line 60001"));
    ek_batch_input_close(&in);
    ek_buf_fini(&b);
    ek_buf_fini(&line);
}

static void a_line_beyond_the_limit_is_passed_over(void **state)
{
    const size_t n = EK_BATCH_LINE_MAX + 1;
    char *large = malloc(n + 8), id[EK_BATCH_ID];
    ek_batch_input in;
    ek_batch_line l;
    ek_buf text = {0};
    (void)state;
    memset(large, 'x', n);
    memcpy(large + n, "\n{}\n", 4);
    put("in", large, n + 4);
    assert_int_equal(ek_batch_input_open(&in, path_in(folder, "in"), true), EK_OK);
    assert_int_equal(in.n, 2);
    assert_int_equal(ek_batch_input_request(&in, 0, &text, &l, id), EK_OK);
    assert_non_null(strstr(l.why, "33554433 bytes, at most 33554432"));
    assert_int_equal(text.len, 0);
    ek_batch_line_fini(&l);
    assert_int_equal(ek_batch_input_request(&in, 1, &text, &l, id), EK_OK);
    assert_non_null(strstr(l.why, "custom_id is needed"));
    ek_batch_line_fini(&l);
    ek_batch_input_close(&in);
    ek_buf_fini(&text);
    free(large);
}

/* --- the part --- */

static ek_buf head_of(const char *text)
{
    ek_buf b = {0};
    ek_buf_str(&b, text);
    return b;
}

static void add(ek_batch_part *p, size_t i, bool error)
{
    ek_buf b = {0};
    ek_buf_fmt(&b, "line %zu%s", i, error ? " failed" : "");
    assert_int_equal(ek_batch_part_add(p, i, &b, error), EK_OK);
    ek_buf_fini(&b);
}

/* A run that is killed at any byte of its last writes: what was whole is there, the rest is made again, and OUT is the
 * same file. */
static void a_part_torn_at_any_byte_goes_on(void **state)
{
    enum { N = 5 };
    static const size_t order[N] = {3, 0, 4, 1, 2};
    static const char want[] = "line 0\nline 1\nline 2\nline 3 failed\nline 4\n";
    ek_buf head = head_of("{\"x\":1}"), whole = {0};
    ek_batch_part *p;
    char sha[65];
    (void)state;
    assert_int_equal(ek_batch_part_open(&p, path_in(folder, "out")), EK_OK);
    assert_int_equal(ek_batch_part_begin(p, &head, N), EK_OK);
    for (size_t k = 0; k < N; k++) add(p, order[k], order[k] == 3);
    ek_batch_part_close(p);
    assert_int_equal(ek_file_read(&whole, path_in(folder, "out.part"), 1 << 20), EK_OK);
    size_t before = 0;
    for (size_t cut = 0; cut <= whole.len; cut++) {
        put("out.part", whole.data, cut);
        unlink(path_in(folder, "out"));
        assert_int_equal(ek_batch_part_open(&p, path_in(folder, "out")), EK_OK);
        assert_int_equal(ek_batch_part_begin(p, &head, N), EK_OK);
        assert_in_range(ek_batch_part_count(p), before, before + 1);
        before = ek_batch_part_count(p);
        for (size_t k = 0; k < N; k++) {
            assert_int_equal(ek_batch_part_has(p, order[k]), k < before);
            if (k >= before) add(p, order[k], order[k] == 3);
        }
        assert_int_equal(ek_batch_part_errors(p), 1);
        assert_int_equal(ek_batch_part_write(p, path_in(folder, "errors"), sha), EK_OK);
        expect("out", want);
        expect("errors", "line 3 failed\n");
        ek_batch_part_close(p);
    }
    assert_int_equal(before, N);
    /* One bit turned: the record and what is behind it are made again. */
    put("out.part", whole.data, whole.len);
    FILE *f = fopen(path_in(folder, "out.part"), "r+");
    fseek(f, (long)whole.len / 2, SEEK_SET);
    fputc(whole.data[whole.len / 2] ^ 4, f);
    fclose(f);
    unlink(path_in(folder, "out"));
    assert_int_equal(ek_batch_part_open(&p, path_in(folder, "out")), EK_OK);
    assert_int_equal(ek_batch_part_begin(p, &head, N), EK_OK);
    assert_in_range(ek_batch_part_count(p), 1, 3);
    ek_batch_part_close(p);
    ek_buf_fini(&head);
    ek_buf_fini(&whole);
}

static void a_part_belongs_to_one_run(void **state)
{
    ek_buf head = head_of("{\"seed\":1,\"shard\":\"1/1\"}"), other = head_of("{\"seed\":2,\"shard\":\"1/1\"}");
    ek_batch_part *p, *q;
    char sha[65];
    (void)state;
    assert_int_equal(ek_batch_part_open(&p, path_in(folder, "own")), EK_OK);
    assert_int_equal(ek_batch_part_open(&q, path_in(folder, "own")), EK_EBUSY);
    assert_non_null(strstr(ek_err_text(), "another run is writing it"));
    assert_int_equal(ek_batch_part_begin(p, &head, 2), EK_OK);
    add(p, 0, false);
    ek_batch_part_close(p);
    assert_int_equal(ek_batch_part_open(&p, path_in(folder, "own")), EK_OK);
    assert_int_equal(ek_batch_part_begin(p, &other, 2), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "of another run, with seed 1, not 2"));
    ek_batch_part_close(p);
    put("own", "older", 5); /* an OUT that is not the part's: never overwritten */
    assert_int_equal(ek_batch_part_open(&p, path_in(folder, "own")), EK_OK);
    assert_false(ek_batch_part_ended(p));
    assert_int_equal(ek_batch_part_begin(p, &head, 2), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "it exists"));
    ek_batch_part_close(p);
    unlink(path_in(folder, "own"));
    assert_int_equal(ek_batch_part_open(&p, path_in(folder, "own")), EK_OK);
    assert_int_equal(ek_batch_part_begin(p, &head, 2), EK_OK);
    add(p, 1, false);
    assert_int_equal(ek_batch_part_write(p, NULL, sha), EK_OK);
    assert_int_equal(ek_batch_part_remove(p), EK_OK);
    ek_batch_part_close(p);
    assert_int_equal(ek_batch_part_open(&p, path_in(folder, "own")), EK_OK);
    assert_true(ek_batch_part_ended(p));
    ek_batch_part_close(p);
    assert_int_not_equal(access(path_in(folder, "own.part"), F_OK), 0); /* nothing was begun */
    ek_buf_fini(&head);
    ek_buf_fini(&other);
}

static void a_part_with_a_line_beyond_its_input_is_refused(void **state)
{
    ek_buf head = head_of("{\"lines\":1}");
    ek_batch_part *p;
    (void)state;
    assert_int_equal(ek_batch_part_open(&p, path_in(folder, "beyond")), EK_OK);
    assert_int_equal(ek_batch_part_begin(p, &head, 8), EK_OK);
    add(p, 7, false);
    ek_batch_part_close(p);
    assert_int_equal(ek_batch_part_open(&p, path_in(folder, "beyond")), EK_OK);
    assert_int_equal(ek_batch_part_begin(p, &head, 1), EK_EPARSE);
    assert_non_null(strstr(ek_err_text(), "it has a line 7 of 1"));
    ek_batch_part_close(p);
    ek_buf_fini(&head);
}

static void a_part_that_cannot_be_is_refused_at_once(void **state)
{
    ek_batch_part *p;
    (void)state;
    assert_int_equal(ek_batch_part_open(&p, path_in(folder, "nowhere/out")), EK_EIO);
    assert_non_null(strstr(ek_err_text(), "nowhere/out.part"));
    assert_int_equal(symlink("/dev/null", path_in(folder, "link.part")), 0); /* somebody else's, in a folder of all */
    assert_int_equal(ek_batch_part_open(&p, path_in(folder, "link")), EK_EIO);
}

/* --- diff --- */

#define LOGPROBS(t, p)                                                                                        \
    "{\"custom_id\":\"a\",\"response\":{\"body\":{\"choices\":[{\"logprobs\":{\"content\":[{\"token\":\"x\"," \
    "\"logprob\":-0.5,\"top_logprobs\":[]},{\"token\":\"" t "\",\"logprob\":" p ",\"top_logprobs\":[]}]}}]}}}"

static void the_first_difference_is_named(void **state)
{
    static const struct {
        const char *a, *b, *says;
    } cases[] = {
        {LOGPROBS("y", "-1.25"), LOGPROBS("y", "-1.2500001"),
         "custom_id \"a\": token 1 is \"y\" in both, log-probability -1.25 and -1.2500001; "
         "response.body.choices[0].logprobs.content[1].logprob is -1.25 and -1.2500001"},
        {LOGPROBS("y", "-1"), LOGPROBS("z", "-1"), "token 1 is \"y\" and \"z\", log-probability -1 and -1; "},
        {"{\"custom_id\":\"a\",\"r\":{\"tokens\":[\"p\",\"q\"],\"token_logprobs\":[null,-2]}}",
         "{\"custom_id\":\"a\",\"r\":{\"tokens\":[\"p\",\"r\"],\"token_logprobs\":[null,-3]}}",
         "token 1 is \"q\" and \"r\", log-probability -2 and -3"},
        {"{\"custom_id\":\"a\",\"t\":\"Hello world\"}", "{\"custom_id\":\"a\",\"t\":\"Hello there\"}",
         "t differs from byte 6: \"Hello world\" and \"Hello there\""},
        {"{\"custom_id\":\"a\"}", "{\"custom_id\":\"b\"}", "in the second one it is \"b\""},
        {"{\"custom_id\":\"a\",\"n\":[1,2]}", "{\"custom_id\":\"a\",\"n\":[1]}", "n[1] is 2 and nothing"},
        {"{\"custom_id\":\"a\"}", "{\"custom_id\":\"a\",\"z\":0}", "z is in the second one alone"},
        {"{\"custom_id\":\"a\",\"x\":1}", "{\"custom_id\":\"a\", \"x\":1}", "written in two ways"},
        {"{", "{}", "the line of the first one is no JSON"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_buf out = {0};
        ek_batch_diff_line(&out, cases[i].a, strlen(cases[i].a), cases[i].b, strlen(cases[i].b));
        if (!strstr(ek_buf_text(&out), cases[i].says)) fail_msg("%zu: %s", i, ek_buf_text(&out));
        ek_buf_fini(&out);
    }
}

static void the_first_other_member_is_named(void **state)
{
    static const char *const cases[][5] = {
        {"{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":3}", "b", "2", "3"},
        {"{}", "{\"a\":\"x\"}", "a", "nothing", "\"x\""},
        {"{\"a\":1}", "{}", "a", "1", "nothing"},
        {"{", "{\"a\":1}", "JSON", "another", "this"},
        {"{\"a\":1 }", "{\"a\":1}", "JSON", "another", "this"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_buf there = head_of(cases[i][0]), here = head_of(cases[i][1]);
        ek_batch_other o;
        ek_batch_find_other(&o, &there, &here);
        assert_string_equal(o.member, cases[i][2]);
        assert_string_equal(o.there, cases[i][3]);
        assert_string_equal(o.here, cases[i][4]);
        ek_buf_fini(&there);
        ek_buf_fini(&here);
    }
}

static void files_are_compared_line_by_line(void **state)
{
    ek_buf out = {0};
    bool same;
    (void)state;
    put("a", "{\"custom_id\":\"1\"}\n{\"custom_id\":\"2\",\"x\":1}\n", 41);
    put("b", "{\"custom_id\":\"1\"}\n{\"custom_id\":\"2\",\"x\":2}\n", 41);
    assert_int_equal(ek_batch_diff(&out, &same, path_in(folder, "a"), path_in(folder, "a")), EK_OK);
    assert_true(same);
    assert_int_equal(ek_batch_diff(&out, &same, path_in(folder, "a"), path_in(folder, "b")), EK_OK);
    assert_false(same);
    assert_string_equal(out.data, "line 2, custom_id \"2\": x is 1 and 2");
    ek_buf_clear(&out);
    put("b", "{\"custom_id\":\"1\"}\n", 18);
    assert_int_equal(ek_batch_diff(&out, &same, path_in(folder, "a"), path_in(folder, "b")), EK_OK);
    assert_false(same);
    assert_non_null(strstr(out.data, "the first 1 are equal"));
    assert_int_equal(ek_batch_diff(&out, &same, path_in(folder, "a"), path_in(folder, "none")), EK_ENOTFOUND);
    ek_buf_fini(&out);
}

static int make_folder(void **state)
{
    (void)state;
    folder = temp_dir();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_dir(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_found_whatever_ends_them),
        cmocka_unit_test(large_inputs_have_the_same_lines),
        cmocka_unit_test(a_line_beyond_the_limit_is_passed_over),
        cmocka_unit_test(a_part_torn_at_any_byte_goes_on),
        cmocka_unit_test(a_part_belongs_to_one_run),
        cmocka_unit_test(a_part_with_a_line_beyond_its_input_is_refused),
        cmocka_unit_test(a_part_that_cannot_be_is_refused_at_once),
        cmocka_unit_test(the_first_difference_is_named),
        cmocka_unit_test(the_first_other_member_is_named),
        cmocka_unit_test(files_are_compared_line_by_line),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
