/* The digest of a checkpoint: a function of names and contents, of nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../support/files.h"
#include "base/alloc.h"
#include "model/weights/digest.h"

enum { BIG = (9 << 20) + 5 }; /* more than two blocks */

static char *dir, *bytes;

static void digest_of(char out[17], const char *path, int threads)
{
    ek_pool *pool = NULL;
    if (threads > 1) assert_int_equal(ek_pool_open(&pool, threads), EK_OK);
    assert_int_equal(ek_model_digest(out, path, pool), EK_OK);
    assert_int_equal(strlen(out), 16);
    if (pool) ek_pool_close(pool);
}

static int fill(void **state)
{
    (void)state;
    dir = temp_dir();
    bytes = ek_alloc(BIG);
    for (int i = 0; i < BIG; i++) bytes[i] = (char)(i * 31 >> 3);
    put_text(dir, "config.json", "{}");
    put_file(dir, "a.safetensors", bytes, BIG);
    put_file(dir, "b.safetensors", "b", 1);
    return 0;
}

static int empty(void **state)
{
    (void)state;
    remove_dir(dir);
    free(bytes);
    return 0;
}

static void threads_and_other_files_change_nothing(void **state)
{
    (void)state;
    char one[17], many[17], more[17];
    digest_of(one, dir, 1);
    digest_of(many, dir, 3);
    assert_string_equal(one, many);
    put_text(dir, "README.md", "about");
    digest_of(more, dir, 1);
    assert_string_equal(one, more);
}

static void every_byte_and_name_counts(void **state)
{
    (void)state;
    static const int at[] = {0, 12345, (4 << 20) - 1, 4 << 20, (8 << 20) + 3, BIG - 1};
    char was[17], is[17], from[300], to[300];
    digest_of(was, dir, 1);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        bytes[at[i]] ^= 4;
        put_file(dir, "a.safetensors", bytes, BIG);
        digest_of(is, dir, 1);
        assert_string_not_equal(was, is);
        bytes[at[i]] ^= 4;
    }
    put_file(dir, "a.safetensors", bytes, BIG - 1);
    digest_of(is, dir, 1);
    assert_string_not_equal(was, is);
    put_file(dir, "a.safetensors", bytes, BIG);
    digest_of(is, dir, 1);
    assert_string_equal(was, is);
    snprintf(from, sizeof from, "%s/b.safetensors", dir);
    snprintf(to, sizeof to, "%s/c.safetensors", dir);
    assert_int_equal(rename(from, to), 0);
    digest_of(is, dir, 1);
    assert_string_not_equal(was, is);
    assert_int_equal(rename(to, from), 0);
}

static void a_file_is_a_checkpoint_too(void **state)
{
    (void)state;
    char path[300], is[17];
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    digest_of(is, path, 2);
    snprintf(path, sizeof path, "%s/none", dir);
    assert_int_equal(ek_model_digest(is, path, NULL), EK_ENOTFOUND);
    assert_non_null(strstr(ek_err_text(), path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_other_files_change_nothing),
        cmocka_unit_test(every_byte_and_name_counts),
        cmocka_unit_test(a_file_is_a_checkpoint_too),
    };
    return cmocka_run_group_tests(tests, fill, empty);
}
