/* The digest of a checkpoint: a function of names and contents, of nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>

#include "../support/files.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/hash/hash.h"
#include "model/weights/digest.h"

enum { BIG = (9 << 20) + 5 }; /* more than two blocks */

static char *dir, *bytes;

static void digest_of(char out[65], const char *path, int threads)
{
    ek_pool *pool = NULL;
    if (threads > 1) assert_int_equal(ek_pool_open(&pool, threads), EK_OK);
    assert_int_equal(ek_model_digest(out, path, pool), EK_OK);
    assert_int_equal(strlen(out), 64);
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
    char one[65], many[65], more[65];
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
    char was[65], is[65], from[300], to[300];
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
    char path[300], is[65];
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    digest_of(is, path, 2);
    snprintf(path, sizeof path, "%s/none", dir);
    assert_int_equal(ek_model_digest(is, path, NULL), EK_ENOTFOUND);
    assert_non_null(strstr(ek_err_text(), path));
}

/* Configurations that decide tokens beside config.json: suppress_tokens, masks of formats, pictures. */
static void what_decides_tokens_counts(void **state)
{
    (void)state;
    static const char *const name[] = {"generation_config.json", "tokenizer.json", "processor_config.json",
                                       "preprocessor_config.json"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char was[65], with[65], other[65], path[300];
        digest_of(was, dir, 1);
        put_text(dir, name[i], "{\"suppress_tokens\": [1]}");
        digest_of(with, dir, 1);
        assert_string_not_equal(was, with);
        put_text(dir, name[i], "{\"suppress_tokens\": [2]}");
        digest_of(other, dir, 1);
        assert_string_not_equal(with, other);
        snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        assert_int_equal(remove(path), 0);
        digest_of(other, dir, 1);
        assert_string_equal(was, other);
    }
}

/* By hand: SHA-256 over each name and the SHA-256 of size and blocks. A hash whose steps can be undone, as the one
 * before was, has two models for one digest. */
static void it_is_sha_256(void **state)
{
    (void)state;
    char *small = temp_dir(), got[65], want[65];
    uint8_t block[32], file[32], size[64];
    ek_sha256_state all;
    put_text(small, "config.json", "{}");
    put_file(small, "m.safetensors", bytes, 1000);
    digest_of(got, small, 1);
    ek_sha256_init(&all);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "m.safetensors" : "config.json";
        const size_t n = i ? 1000 : 2;
        ek_sha256(block, i ? bytes : "{}", n);
        const int digits = sprintf((char *)size, "%zu\n", n);
        memcpy(size + digits, block, 32);
        ek_sha256(file, size, (size_t)digits + 32);
        ek_sha256_add(&all, name, strlen(name) + 1);
        ek_sha256_add(&all, file, 32);
    }
    ek_sha256_end(&all, want);
    assert_string_equal(got, want);
    remove_dir(small);
}

/* As people compute it. */
static void sums_are_those_of_sha256sum(void **state)
{
    (void)state;
    char *folder = temp_dir(), line[700], got[65], tokenizer[65], want[65] = "";
    const char *const command[] = {
        "cd %s && sha256sum config.json *.safetensors | LC_ALL=C sort | sha256sum",
        "cd %s && sha256sum tokenizer.json generation_config.json | LC_ALL=C sort | sha256sum",
        "sha256sum %s/m.safetensors"};
    put_text(folder, "config.json", "{}");
    put_text(folder, "tokenizer.json", "{\"a\":1}");
    put_text(folder, "generation_config.json", "{}");
    put_text(folder, "notes.txt", "none");
    put_file(folder, "m.safetensors", bytes, 1000);
    put_file(folder, "n.safetensors", bytes, 2000);
    put_file(folder, ".n.safetensors.part.safetensors", bytes, 500); /* a shell's * does not name it */
    assert_int_equal(ek_model_sha256(got, tokenizer, folder, NULL, NULL), EK_OK);
    for (int i = 0; i < 3; i++) {
        char path[700];
        snprintf(line, sizeof line, command[i], folder);
        FILE *f = popen(line, "r");
        assert_non_null(f);
        assert_int_equal(fscanf(f, "%64s", want), 1);
        pclose(f);
        snprintf(path, sizeof path, "%s/m.safetensors", folder);
        if (i == 2) assert_int_equal(ek_model_sha256(got, tokenizer, path, NULL, NULL), EK_OK);
        assert_string_equal(i == 1 ? tokenizer : got, want);
    }
    /* One byte of either changes its own sum. */
    char weights[65], other[65];
    put_text(folder, "tokenizer.json", "{\"a\":2}");
    assert_int_equal(ek_model_sha256(weights, other, folder, NULL, NULL), EK_OK);
    assert_int_equal(ek_model_sha256(got, tokenizer, folder, NULL, NULL), EK_OK);
    assert_string_equal(got, weights);
    put_file(folder, "m.safetensors", bytes, 999);
    assert_int_equal(ek_model_sha256(got, tokenizer, folder, NULL, NULL), EK_OK);
    assert_string_not_equal(got, weights);
    assert_string_equal(tokenizer, other);
    assert_int_equal(ek_model_sha256(got, tokenizer, "/nowhere", NULL, NULL), EK_ENOTFOUND);
    remove_dir(folder);
}

/* Some of them would be no sum of the folder. */
static void too_many_files_have_none(void **state)
{
    (void)state;
    enum { MOST = 4096 };
    char *folder = temp_dir(), weights[65], tokenizer[65], name[32];
    put_text(folder, "config.json", "{}");
    put_text(folder, "tokenizer.json", "{}");
    for (int i = 1; i <= MOST; i++) {
        if (i == MOST) assert_int_equal(ek_model_sha256(weights, tokenizer, folder, NULL, NULL), EK_OK);
        snprintf(name, sizeof name, "%d.safetensors", i);
        put_text(folder, name, "");
    }
    assert_int_equal(ek_model_sha256(weights, tokenizer, folder, NULL, NULL), EK_ETOOLARGE);
    remove_dir(folder);
}

static void kept_of(char out[65], const char *folder)
{
    assert_int_equal(ek_model_digest_kept(out, dir, folder, NULL), EK_OK);
}

/* The one file of a folder, with its last line or without. */
static void read_kept(ek_buf *out, char path[600], const char *folder)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    int n = 0;
    assert_non_null(d);
    while ((e = readdir(d)))
        if (e->d_name[0] != '.') snprintf(path, 600, "%s/%s", folder, e->d_name), n++;
    closedir(d);
    assert_int_equal(n, 1);
    ek_buf_clear(out);
    assert_int_equal(ek_file_read(out, path, 1 << 20), EK_OK);
}

static void hashes_of_files_are_kept(void **state)
{
    (void)state;
    char *top = temp_dir(), folder[300], path[600], want[65], got[65], hex[65];
    ek_buf text = {0};
    snprintf(folder, sizeof folder, "%s/a", top);
    digest_of(want, dir, 1);
    for (int i = 0; i < 2; i++) {
        kept_of(got, folder); /* makes the folder */
        assert_string_equal(want, got);
    }
    /* it is used: another hash in it, with a right sum, is another digest */
    read_kept(&text, path, folder);
    text.len -= 65;
    char *digit = text.data + text.len - 2;
    *digit = *digit == '0' ? '1' : '0';
    ek_sha256_hex(hex, text.data, text.len);
    memcpy(text.data + text.len, hex, 64);
    put_file(folder, strrchr(path, '/') + 1, text.data, text.len + 65);
    kept_of(got, folder);
    assert_string_not_equal(want, got);
    /* damaged, cut, empty or foreign it is ignored, and written anew */
    for (int i = 0; i < 5; i++) {
        text.data[text.len / 2] ^= i == 0;
        const size_t n = i == 1 ? text.len / 2 : i == 2 ? 0 : i == 3 ? 10 : text.len + 65;
        if (i == 4) memset(text.data, 'x', text.len);
        put_file(folder, strrchr(path, '/') + 1, text.data, n);
        for (int twice = 0; twice < 2; twice++) {
            kept_of(got, folder);
            assert_string_equal(want, got);
        }
    }
    /* a file that changed is hashed, with the same size too */
    bytes[77] ^= 1;
    put_file(dir, "a.safetensors", bytes, BIG);
    kept_of(got, folder);
    assert_string_not_equal(want, got);
    digest_of(want, dir, 2);
    assert_string_equal(want, got);
    bytes[77] ^= 1;
    put_file(dir, "a.safetensors", bytes, BIG);
    kept_of(got, "/proc/no/such"); /* cannot be kept */
    ek_buf_fini(&text);
    remove(path), remove(folder);
    remove_dir(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_other_files_change_nothing),
        cmocka_unit_test(every_byte_and_name_counts),
        cmocka_unit_test(a_file_is_a_checkpoint_too),
        cmocka_unit_test(what_decides_tokens_counts),
        cmocka_unit_test(it_is_sha_256),
        cmocka_unit_test(sums_are_those_of_sha256sum),
        cmocka_unit_test(too_many_files_have_none),
        cmocka_unit_test(hashes_of_files_are_kept),
    };
    return cmocka_run_group_tests(tests, fill, empty);
}
