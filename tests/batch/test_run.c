/* A run from lines to results, by a runner that needs no model: files that it must not touch, counts that it says,
 * tasks that it frees (under a sanitizer). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "batch/batch.h"
#include "../support/files.h"

#define REQUEST(name) "{\"custom_id\":\"" name "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\n"

static char *folder;

static void put(const char *name, const char *text)
{
    assert_int_equal(ek_file_replace(path_in(folder, name), text, strlen(text), 0644), EK_OK);
}

static bool has(const char *name, const char *text)
{
    ek_buf b = {0};
    assert_int_equal(ek_file_read(&b, path_in(folder, name), 1 << 20), EK_OK);
    const bool found = strstr(ek_buf_text(&b), text) != NULL;
    ek_buf_fini(&b);
    return found;
}

/* --- a runner that answers each line with {} --- */

typedef struct fake {
    ek_batch_runner base;
    ek_batch_task *first;
    ek_err fails;
} fake;

static void start(ek_batch_runner *r, ek_batch_task *t)
{
    fake *f = (fake *)(void *)r;
    t->next = f->first;
    f->first = t;
}

static ek_err wait(ek_batch_runner *r, double seconds, ek_batch_task **out)
{
    fake *f = (fake *)(void *)r;
    (void)seconds;
    *out = f->first;
    f->first = (*out)->next;
    if (f->fails) return ek_fail(f->fails, "it broke");
    (*out)->status = 200;
    ek_buf_str(&(*out)->body, "{}");
    return EK_OK;
}

static void close_fake(fake *f)
{
    for (ek_batch_task *t = f->first; t; t = f->first) {
        f->first = t->next;
        ek_batch_task_free(t);
    }
    ek_buf_fini(&f->base.identity);
}

static bool stop_at_once(void *arg)
{
    (void)arg;
    return true;
}

typedef struct how {
    const char *errors;
    int shard, shards;
    ek_err fails;
    bool stops;
} how;

static ek_err run(ek_batch_result *r, const char *in, const char *out, const how *h, size_t *has_lines)
{
    ek_batch_input input;
    ek_batch_part *part = NULL;
    fake f = {.base = {.width = 4, .start = start, .wait = wait}, .fails = h->fails};
    const ek_batch_opts o = {.out = path_in(folder, out),
                             .errors = h->errors,
                             .shard = h->shard ? h->shard : 1,
                             .shards = h->shards ? h->shards : 1};
    const ek_batch_watch watch = {.stop = h->stops ? stop_at_once : NULL};
    ek_buf_str(&f.base.identity, "{\"context\":8}");
    assert_int_equal(ek_batch_input_open(&input, path_in(folder, in), true), EK_OK);
    ek_err err = ek_batch_check_names(input.path, &o);
    if (!err) err = ek_batch_part_open(&part, o.out);
    if (!err) err = ek_batch_run(r, &o, &input, part, &f.base, &watch);
    if (has_lines) *has_lines = ek_batch_part_count(part);
    close_fake(&f);
    ek_batch_part_close(part);
    ek_batch_input_close(&input);
    return err;
}

static void errors_are_counted_whoever_computed_them(void **state)
{
    ek_batch_result r;
    (void)state;
    put("in", REQUEST("a") "no request\n" REQUEST("b") "nor this\n" REQUEST("c"));
    assert_int_equal(run(&r, "in", "out", &(how){0}, NULL), EK_OK);
    assert_int_equal(r.errors, 2);
    assert_int_equal(run(&r, "in", "out", &(how){0}, NULL), EK_OK); /* an OUT that is there */
    assert_int_equal(r.lines, 5);
    assert_int_equal(r.computed, 0);
    assert_int_equal(r.errors, 2);
    assert_int_equal(run(&r, "in", "one", &(how){.shard = 1, .shards = 2}, NULL), EK_OK);
    assert_int_equal(run(&r, "in", "two", &(how){.shard = 2, .shards = 2}, NULL), EK_OK);
    const char *const parts[] = {path_in(folder, "two"), path_in(folder, "one")};
    assert_int_equal(ek_batch_merge(&r, path_in(folder, "merged"), parts, 2), EK_OK);
    assert_int_equal(r.errors, 2);
    assert_true(has("merged.run.json", "\"errors\":2"));
}

static void the_copy_of_errors_takes_no_ones_place(void **state)
{
    ek_batch_result r;
    (void)state;
    put("in", REQUEST("a") "no request\n");
    assert_int_equal(symlink(path_in(folder, "in"), path_in(folder, "link")), 0);
    assert_int_equal(run(&r, "in", "safe", &(how){.errors = path_in(folder, "link")}, NULL), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "link is the input"));
    assert_int_equal(run(&r, "in", "safe", &(how){.errors = path_in(folder, "safe")}, NULL), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "safe is the result's own file"));
    assert_true(has("in", "no request\n"));
    assert_int_not_equal(access(path_in(folder, "safe.part"), F_OK), 0); /* nothing was begun */
    assert_int_equal(run(&r, "in", "safe", &(how){.errors = path_in(folder, "errors")}, NULL), EK_OK);
    assert_true(has("errors", "invalid_line"));
    for (const char *const *end = (const char *const[]){"", ".part", ".tmp", ".run.json", NULL}; *end; end++) {
        char name[64];
        snprintf(name, sizeof name, "./new%s", *end); /* none exists yet */
        assert_int_equal(run(&r, "in", "new", &(how){.errors = path_in(folder, name)}, NULL), EK_EINVAL);
        assert_non_null(strstr(ek_err_text(), "is the result's own file"));
    }
    assert_int_equal(run(&r, "in", "new", &(how){.errors = folder}, NULL), EK_EINVAL);
    assert_int_equal(run(&r, "in", "new", &(how){.errors = "/dev/null"}, NULL), EK_EINVAL);
    assert_int_equal(run(&r, "in", "new", &(how){.errors = path_in(folder, "none/errors")}, NULL), EK_EIO);
    assert_int_not_equal(access(path_in(folder, "new.part"), F_OK), 0);
}

static void a_file_that_is_no_part_of_a_run_is_kept(void **state)
{
    static const char *const input[] = {"x.part", "x.tmp", "x.run.json"};
    ek_batch_result r;
    (void)state;
    for (size_t i = 0; i < sizeof input / sizeof *input; i++) {
        put(input[i], REQUEST("a"));
        assert_int_equal(run(&r, input[i], "x", &(how){0}, NULL), EK_EINVAL);
        assert_true(has(input[i], REQUEST("a")));
    }
    put("in", REQUEST("a"));
    put("e.tmp", REQUEST("a"));
    assert_int_equal(run(&r, "e.tmp", "y", &(how){.errors = path_in(folder, "e")}, NULL), EK_EINVAL);
    const char *const shard = path_in(folder, "merged.tmp");
    assert_int_equal(ek_batch_merge(&r, path_in(folder, "merged"), &shard, 1), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "would be overwritten"));
    put("foreign.part", "a film, half of it fetched");
    assert_int_equal(run(&r, "in", "foreign", &(how){0}, NULL), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "it is no unfinished result"));
    assert_true(has("foreign.part", "a film"));
    put("torn.part", "\377\377\377\377\377\377\377\377\7"); /* a killed process left a part of a head */
    assert_int_equal(run(&r, "in", "torn", &(how){0}, NULL), EK_OK);
}

static void lines_that_are_no_requests_can_be_stopped(void **state)
{
    enum { N = 300000 };
    ek_batch_result r;
    size_t done = 0;
    char *text = malloc(2 * N + 1);
    (void)state;
    for (size_t i = 0; i < N; i++) memcpy(text + 2 * i, "x\n", 3);
    put("many", text);
    free(text);
    assert_int_equal(run(&r, "many", "stopped", &(how){.stops = true}, &done), EK_ECANCELLED);
    assert_in_range(done, 1, N - 1);
}

static void a_failure_names_its_line(void **state)
{
    ek_batch_result r;
    (void)state;
    put("in", "no request\n" REQUEST("a"));
    assert_int_equal(run(&r, "in", "failed", &(how){.fails = EK_EIO}, NULL), EK_EIO);
    assert_string_equal(ek_err_text(), "line 2: it broke");
}

static void shards_are_spelled_in_one_way(void **state)
{
    static const char *const wrong[] = {
        "", "1", "1/", "0/2", "3/2", "1/2x", "-1/2", "1/10001", "4294967297/4294967297"};
    int shard, shards;
    (void)state;
    assert_true(ek_batch_shard_read(&shard, &shards, "2/5"));
    assert_int_equal(shard, 2);
    assert_int_equal(shards, 5);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (ek_batch_shard_read(&shard, &shards, wrong[i])) fail_msg("%s", wrong[i]);
    for (size_t n = 0; n < 12; n++) {
        size_t all = 0;
        for (int k = 1; k <= 5; k++) {
            const size_t lines = ek_batch_shard_lines(n, k, 5);
            if (lines) assert_in_range(ek_batch_shard_line(lines - 1, k, 5), 0, n - 1);
            all += lines;
        }
        assert_int_equal(all, n);
    }
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
        cmocka_unit_test(errors_are_counted_whoever_computed_them),
        cmocka_unit_test(the_copy_of_errors_takes_no_ones_place),
        cmocka_unit_test(a_file_that_is_no_part_of_a_run_is_kept),
        cmocka_unit_test(lines_that_are_no_requests_can_be_stopped),
        cmocka_unit_test(a_failure_names_its_line),
        cmocka_unit_test(shards_are_spelled_in_one_way),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
