/* The operator's copies of receipts: a line each, whatever lay at the end of the file. Over HTTP, and on a full disk:
 * tests/e2e/receipts.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../support/files.h"
#include "base/buf.h"
#include "base/file.h"
#include "receipts/openings.h"

#define ONE "{\"id\":\"a\",\"choice\":0,\"receipt\":{\"n\":1}}"
#define TWO "{\"id\":\"b\",\"choice\":1,\"receipt\":{\"n\":2}}"

static ek_openings *open_at(const char *path)
{
    ek_openings *o;
    if (ek_openings_open(&o, path)) fail_msg("%s", ek_err_text());
    return o;
}

static void says(const char *path, const char *want)
{
    ek_buf b = {0};
    assert_int_equal(ek_file_read(&b, path, 1 << 20), EK_OK);
    assert_string_equal(ek_buf_text(&b), want);
    ek_buf_fini(&b);
}

static void add_two(ek_openings *o)
{
    static const char receipt[] = "{\"n\":2}";
    assert_int_equal(ek_openings_ready(o), EK_OK);
    assert_int_equal(ek_openings_add(o, "b", 1, receipt, sizeof receipt - 1), EK_OK);
}

/* What the file's end may be, and what stands there once a line was added. */
static const struct {
    const char *was, *is;
} ends[] = {
    {"", TWO "\n"},
    {ONE "\n", ONE "\n" TWO "\n"},
    {ONE, ONE "\n" TWO "\n"}, /* as an editor leaves it */
    {ONE "\n" ONE, ONE "\n" ONE "\n" TWO "\n"},
    {ONE "\n{\"id\":\"a\",\"choi", ONE "\n" TWO "\n"},
    {"{\"id\":\"a\",\"choi", TWO "\n"},
    {ONE "\n7", ONE "\n" TWO "\n"},
    {ONE "\n\n", ONE "\n\n" TWO "\n"},
};

static void the_end_is_a_whole_line(void **state)
{
    (void)state;
    char *dir = temp_dir();
    const char *path = path_in(dir, "openings");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        assert_int_equal(ek_file_replace(path, ends[i].was, strlen(ends[i].was), 0600), EK_OK);
        ek_openings *o = open_at(path);
        add_two(o);
        ek_openings_close(o);
        says(path, ends[i].is);
    }
    remove_dir(dir);
}

/* An operator who takes lines out puts another file there. */
static void another_file_is_begun_as_whole(void **state)
{
    (void)state;
    char *dir = temp_dir();
    const char *path = path_in(dir, "openings");
    ek_openings *o = open_at(path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        assert_int_equal(ek_file_replace(path, ends[i].was, strlen(ends[i].was), 0600), EK_OK);
        assert_int_equal(ek_openings_reopen(o), EK_OK);
        add_two(o);
        says(path, ends[i].is);
        assert_int_equal(ek_openings_reopen(o), EK_OK); /* the same one: it goes on */
        add_two(o);
    }
    ek_openings_close(o);
    remove_dir(dir);
}

static void others_are_kept_out(void **state)
{
    (void)state;
    char *dir = temp_dir();
    const char *path = path_in(dir, "openings");
    ek_openings *o = open_at(path), *second;
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(ek_openings_open(&second, path), EK_EBUSY);
    add_two(o);
    assert_int_equal(remove(path), 0);
    put_text(dir, "openings", ONE "\n");
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(ek_openings_reopen(o), EK_EINVAL); /* the old one stays */
    add_two(o);
    ek_openings_close(o);
    says(path, ONE "\n");
    assert_int_equal(ek_openings_open(&o, path), EK_EINVAL);
    assert_int_equal(ek_openings_open(&o, dir), EK_EIO);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_is_a_whole_line),
        cmocka_unit_test(another_file_is_begun_as_whole),
        cmocka_unit_test(others_are_kept_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
