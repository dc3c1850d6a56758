/* The cache on disk: links, references, what is found without a network, what a removal takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/files.h"
#include "base/file.h"
#include "hub/pull.h"
#include "hub/store.h"

#define C1 "1111111111111111111111111111111111111111"
#define C2 "2222222222222222222222222222222222222222"

typedef struct bed {
    char *dir;
    ek_hub_cache cache;
} bed;

static int open_bed(void **state)
{
    bed *b = calloc(1, sizeof *b);
    b->dir = temp_dir();
    ek_hub_cache_init(&b->cache, b->dir, "org/m");
    *state = b;
    return ek_hub_cache_make(&b->cache);
}

static int close_bed(void **state)
{
    bed *b = *state;
    ek_buf command = {0};
    ek_buf_fmt(&command, "rm -rf '%s'/*--* '%s'/.locks", b->dir, b->dir);
    int rc = system(ek_buf_text(&command));
    ek_buf_fini(&command);
    ek_hub_cache_fini(&b->cache);
    remove_dir(b->dir);
    free(b);
    return rc;
}

/* git's hash of a text. */
static void hash_of(char out[41], const char *text)
{
    char head[40];
    ek_sha1_state s;
    ek_sha1_init(&s);
    ek_sha1_add(&s, head, (size_t)snprintf(head, sizeof head, "blob %zu", strlen(text)) + 1);
    ek_sha1_add(&s, text, strlen(text));
    ek_sha1_end(&s, out);
}

/* Puts a file into a snapshot the way a pull does. */
static void put(bed *b, const char *commit, char *path, const char *text)
{
    ek_hub_file file = {.path = path, .size = (int64_t)strlen(text)};
    ek_hub_claim claim;
    ek_hub_blob blob;
    char hash[41];
    hash_of(hash, text);
    memcpy(file.hash, hash, sizeof hash);
    assert_int_equal(ek_hub_blob_claim(&blob, &claim, &b->cache, &file), EK_OK);
    if (claim == EK_HUB_OURS) {
        assert_int_equal(ek_hub_blob_write(&blob, text, strlen(text)), EK_OK);
        assert_int_equal(ek_hub_blob_finish(&blob), EK_OK);
    }
    assert_int_equal(ek_hub_link(&b->cache, commit, &file), EK_OK);
}

static ek_err find_error(const bed *b, const char *text)
{
    ek_buf out = {0};
    ek_hub_name name;
    assert_int_equal(ek_hub_name_parse(&name, text), EK_OK);
    const ek_err err = ek_hub_find(&out, b->dir, &name);
    ek_buf_fini(&out);
    return err;
}

static char *found(bed *b, const char *text)
{
    static ek_buf out;
    ek_hub_name name;
    assert_int_equal(ek_hub_name_parse(&name, text), EK_OK);
    ek_buf_clear(&out);
    if (ek_hub_find(&out, b->dir, &name)) {
        ek_buf_clear(&out);
        ek_buf_fmt(&out, "! %s", ek_err_text());
    } else {
        assert_memory_equal(out.data, b->dir, strlen(b->dir));
        memmove(out.data, out.data + strlen(b->dir), out.len - strlen(b->dir) + 1);
    }
    return out.data;
}

static void a_link_is_relative_and_replaced(void **state)
{
    bed *b = *state;
    char target[300];
    ek_buf path = {0};
    put(b, C1, "a/b/c.json", "one");
    ek_buf_fmt(&path, "%s/snapshots/" C1 "/a/b/c.json", b->cache.repo.data);
    ssize_t n = readlink(path.data, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    assert_memory_equal(target, "../../../../blobs/", 18);
    ek_buf text = {0};
    assert_int_equal(ek_file_read(&text, path.data, 100), EK_OK);
    assert_string_equal(text.data, "one");
    put(b, C1, "a/b/c.json", "two");
    ek_buf_clear(&text);
    assert_int_equal(ek_file_read(&text, path.data, 100), EK_OK);
    assert_string_equal(text.data, "two");
    ek_buf_fini(&text);
    ek_buf_fini(&path);
}

static void a_blob_gets_its_name_when_its_hash_is_right(void **state)
{
    bed *b = *state;
    ek_hub_file file = {.path = "x", .size = 6};
    ek_hub_claim claim;
    ek_hub_blob one, two;
    char hash[41];
    hash_of(hash, "abcdef");
    memcpy(file.hash, hash, sizeof hash);
    assert_int_equal(ek_hub_blob_claim(&one, &claim, &b->cache, &file), EK_OK);
    assert_int_equal(claim, EK_HUB_OURS);
    assert_int_equal(ek_hub_blob_claim(&two, &claim, &b->cache, &file), EK_OK);
    assert_int_equal(claim, EK_HUB_HELD);
    assert_int_equal(ek_hub_blob_write(&one, "abc", 3), EK_OK);
    ek_hub_blob_release(&one);
    assert_int_equal(ek_hub_blob_claim(&two, &claim, &b->cache, &file), EK_OK);
    assert_int_equal(claim, EK_HUB_OURS);
    assert_int_equal(two.written, 3);
    assert_int_equal(ek_hub_blob_hash(&two, 100), EK_OK);
    assert_int_equal(ek_hub_blob_write(&two, "deX", 3), EK_OK);
    assert_int_equal(ek_hub_blob_finish(&two), EK_EFORMAT);
    assert_true(ek_hub_blob_size(&b->cache, hash, ".incomplete") == -1);
    assert_true(ek_hub_blob_size(&b->cache, hash, "") == -1);
    put(b, C1, "x", "abcdef");
    assert_int_equal(ek_hub_blob_claim(&two, &claim, &b->cache, &file), EK_OK);
    assert_int_equal(claim, EK_HUB_THERE);
}

static void what_is_found_without_a_network(void **state)
{
    bed *b = *state;
    assert_non_null(strstr(found(b, "org/m"), "`evenkeel pull org/m` fetches it"));
    put(b, C1, "config.json", "{}");
    put(b, C1, "model.safetensors", "w");
    assert_string_equal(found(b, "org/m"), "/models--org--m/snapshots/" C1); /* another tool's, without a reference */
    put(b, C2, "m-Q4_0.gguf", "q");
    put(b, C2, "m-Q8_0.gguf", "r");
    assert_int_equal(ek_hub_ref_write(&b->cache, "main", C2), EK_OK);
    assert_string_equal(found(b, "org/m:Q8_0"), "/models--org--m/snapshots/" C2 "/m-Q8_0.gguf");
    assert_non_null(strstr(found(b, "org/m"), "several models"));
    assert_int_equal(find_error(b, "org/m"), EK_EINVAL);
    assert_int_equal(find_error(b, "org/m:Q6_K"), EK_ENOTFOUND);
    assert_string_equal(found(b, "org/m@" C1), "/models--org--m/snapshots/" C1);
    assert_non_null(strstr(found(b, "org/m@v1"), "`evenkeel pull org/m@v1` fetches it"));
    assert_int_equal(ek_hub_ref_write(&b->cache, "refs/pr/1", C1), EK_OK);
    assert_string_equal(found(b, "org/m@refs/pr/1"), "/models--org--m/snapshots/" C1);
    assert_non_null(strstr(found(b, "org/other"), "is not in the cache"));
}

static void a_part_that_is_missing_is_named(void **state)
{
    bed *b = *state;
    put(b, C1, "config.json", "{}");
    put(b, C1, "model-00001-of-00002.safetensors", "w");
    assert_int_equal(ek_hub_ref_write(&b->cache, "main", C1), EK_OK);
    assert_non_null(strstr(found(b, "org/m"), "model-00002-of-00002.safetensors is missing"));
    assert_non_null(strstr(found(b, "org/m"), "`evenkeel pull org/m` fetches what is missing"));
}

/* Bytes that removing a name would free, -1 if it cannot be; the files that are left in *left. */
static double removed(bed *b, const char *text, int *left)
{
    ek_hub_name name;
    ek_hub_removal r;
    ek_hub_files f;
    assert_int_equal(ek_hub_name_parse(&name, text), EK_OK);
    double bytes = ek_hub_removal_plan(&r, b->dir, &name) ? -1 : r.bytes;
    if (bytes >= 0) assert_int_equal(ek_hub_removal_run(&r, b->dir, &name), EK_OK);
    ek_hub_removal_fini(&r);
    *left = 0;
    for (int i = 0; i < 2; i++) {
        if (ek_hub_snapshot(&f, &b->cache, i ? C2 : C1) == EK_OK) *left += f.n;
        ek_hub_files_fini(&f);
    }
    return bytes;
}

static void a_removal_leaves_what_others_need(void **state)
{
    bed *b = *state;
    int left;
    ek_hub_entries e;
    put(b, C1, "shared.json", "{}");
    put(b, C1, "m-Q4_0.gguf", "1234");
    put(b, C2, "shared.json", "{}");
    put(b, C2, "m-Q4_0.gguf", "12345");
    put(b, C2, "x/m-Q8_0.gguf", "123456");
    assert_int_equal(ek_hub_ref_write(&b->cache, "main", C2), EK_OK);
    assert_int_equal(ek_hub_ref_write(&b->cache, "old", C1), EK_OK);
    assert_int_equal(ek_hub_entries_read(&e, b->dir, NULL), EK_OK);
    assert_int_equal(e.n, 2);
    assert_string_equal(e.v[0].revision, "old");
    assert_string_equal(e.v[1].revision, "main");
    assert_true(e.v[1].bytes == 13 && e.bytes == 17);
    ek_hub_entries_fini(&e);
    assert_true(removed(b, "org/m:Q2_K", &left) == -1 && left == 5);
    assert_true(removed(b, "org/m@none", &left) == -1 && left == 5);
    assert_true(removed(b, "org/m@old", &left) == 4 && left == 3);
    char commit[41];
    assert_int_equal(ek_hub_ref_read(&b->cache, "old", commit), EK_ENOTFOUND);
    assert_int_equal(ek_hub_ref_read(&b->cache, "main", commit), EK_OK);
    assert_true(removed(b, "org/m:Q8_0", &left) == 6 && left == 2);
    assert_true(removed(b, "org/m", &left) == 7 && left == 0);
    assert_false(ek_is_dir(b->cache.repo.data));
}

static void a_removal_follows_no_link(void **state)
{
    bed *b = *state;
    int left;
    ek_buf keep = {0}, link = {0};
    put(b, C1, "config.json", "{}");
    put_text(b->dir, "keep", "x");
    ek_buf_fmt(&keep, "%s/keep", b->dir);
    ek_buf_fmt(&link, "%s/snapshots/" C1 "/away", b->cache.repo.data);
    assert_int_equal(symlink(b->dir, link.data), 0);
    removed(b, "org/m", &left);
    assert_true(ek_is_file(keep.data));
    assert_false(ek_is_dir(b->cache.repo.data));
    ek_buf_fini(&keep);
    ek_buf_fini(&link);
}

int main(void)
{
#define WITH_BED(test) cmocka_unit_test_setup_teardown(test, open_bed, close_bed)
    const struct CMUnitTest tests[] = {
        WITH_BED(a_link_is_relative_and_replaced),   WITH_BED(a_blob_gets_its_name_when_its_hash_is_right),
        WITH_BED(what_is_found_without_a_network),   WITH_BED(a_part_that_is_missing_is_named),
        WITH_BED(a_removal_leaves_what_others_need), WITH_BED(a_removal_follows_no_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
