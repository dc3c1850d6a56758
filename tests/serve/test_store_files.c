/* The store of responses in files: what lies there after a restart is what was there before, whatever happened to the
 * files. kill -9 and keys: tests/e2e/kept.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/files.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "serve/store/conversations.h"
#include "serve/store/response_state.h"

enum { PATH = 512, MAX = 64 };
#define MIB ((size_t)1 << 20)

static char logged[1 << 14];

static void keep_log(void *arg, int level, const char *line)
{
    (void)arg, (void)level;
    const size_t n = strlen(logged);
    snprintf(logged + n, sizeof logged - n, "%s\n", line);
}

static ek_response_store *open_in(const char *dir, double max_age)
{
    ek_response_store *s = ek_response_store_open(MAX, MIB);
    *logged = '\0';
    if (ek_response_store_keep(s, dir, max_age)) fail_msg("%s", ek_err_text());
    return s;
}

/* A response with an item in its input and one in its output. */
static void put(ek_response_store *s, uint64_t owner, const char *id, const char *previous, const char *text)
{
    ek_stored_response r = {.id = id, .previous = previous, .background = owner == 7};
    ek_stored_item in = {.from = 1}, out = {.output = true};
    char name[64];
    ek_buf_fmt(&r.input, "[{\"type\":\"message\",\"id\":\"in_%s\",\"text\":\"%s\"}]", id, text);
    in.n = r.input.len - 2;
    ek_buf_fmt(&r.response, "{\"id\":\"%s\",\"output\":[", id);
    r.from = r.response.len - 1;
    out.from = r.response.len;
    ek_buf_fmt(&r.response, "{\"id\":\"out_%s\",\"text\":\"%s\"}", id, text);
    out.n = r.response.len - out.from;
    ek_buf_str(&r.response, "]}");
    r.n = r.response.len - 1 - r.from;
    snprintf(name, sizeof name, "in_%s", id);
    ek_response_store_note(s, owner, &r.items, name, strlen(name), in);
    snprintf(name, sizeof name, "out_%s", id);
    ek_response_store_note(s, owner, &r.items, name, strlen(name), out);
    assert_true(ek_response_store_put(s, owner, &r));
}

static bool has(ek_response_store *s, uint64_t owner, const char *id)
{
    return ek_response_store_knows(s, owner, id, NULL);
}

/* The conversation that ends with id, and an item, as text. */
static void reads(ek_response_store *s, uint64_t owner, const char *id, const char *item, const char *want)
{
    const ek_api_limits limits = {.responses = s, .owner = owner};
    json_t *list = json_array(), *one;
    ek_buf out = {0};
    if (ek_response_store_items(&limits, id, list)) fail_msg("%s", ek_err_text());
    ek_json_write(&out, list);
    if (ek_response_store_item(&limits, item, strlen(item), &one)) fail_msg("%s", ek_err_text());
    ek_json_write(&out, one);
    assert_string_equal(out.data, want);
    ek_buf_fini(&out);
    json_decref(list);
    json_decref(one);
}

/* The files of records there; the path of the last. */
static int files(const char *dir, char path[PATH])
{
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (!strstr(e->d_name, ".response")) continue;
        n++;
        if (path) snprintf(path, PATH, "%s/%s", dir, e->d_name);
    }
    closedir(d);
    return n;
}

static void survives(void **state)
{
    (void)state;
    char *dir = temp_dir(), conversation[EK_CONVERSATION_ID];
    bool background = false;
    ek_response_store *s = open_in(dir, 0);
    put(s, 0, "resp_1", NULL, "one");
    put(s, 0, "resp_2", "resp_1", "tw\xc3\xb6");
    put(s, 7, "resp_2", NULL, "another's");
    put(s, 0, "../../resp/3", NULL, "no path");
    put(s, 0, "resp_4", NULL, "deleted");
    assert_int_equal(ek_response_store_delete(s, 0, "resp_4"), EK_OK);
    ek_new_items items = {0};
    ek_buf_str(&items.text, "{\"id\":\"msg_1\",\"type\":\"message\"}");
    ek_response_store_note(s, 0, &items.at, "msg_1", 5, (ek_stored_item){.n = items.text.len});
    assert_int_equal(ek_conversation_create(s, 0, 77, "{\"a\":\"b\"}", &items, conversation), EK_OK);
    ek_stored_response thread = {.id = "msg_5"}; /* as Anthropic's are: a list, and no items */
    ek_buf_str(&thread.input, "[{},{\"role\":\"user\"}]");
    ek_buf_str(&thread.response, "[{\"role\":\"assistant\"}]");
    thread.n = thread.response.len;
    assert_true(ek_response_store_put(s, 0, &thread));
    ek_response_store_close(s);
    assert_int_equal(files(dir, NULL), 6);

    s = open_in(dir, 0);
    assert_non_null(strstr(logged, "entries=6"));
    reads(s, 0, "resp_2", "out_resp_1",
          "[{\"type\":\"message\",\"id\":\"in_resp_1\",\"text\":\"one\"},{\"id\":\"out_resp_1\",\"text\":\"one\"},"
          "{\"type\":\"message\",\"id\":\"in_resp_2\",\"text\":\"tw\xc3\xb6\"},"
          "{\"id\":\"out_resp_2\",\"text\":\"tw\xc3\xb6\"}]{\"id\":\"out_resp_1\",\"text\":\"one\"}");
    reads(s, 7, "resp_2", "in_resp_2",
          "[{\"type\":\"message\",\"id\":\"in_resp_2\",\"text\":\"another's\"},"
          "{\"id\":\"out_resp_2\",\"text\":\"another's\"}]"
          "{\"type\":\"message\",\"id\":\"in_resp_2\",\"text\":\"another's\"}");
    assert_true(ek_response_store_knows(s, 7, "resp_2", &background) && background);
    assert_true(ek_response_store_knows(s, 0, "resp_2", &background) && !background);
    assert_true(has(s, 0, "../../resp/3") && has(s, 0, "msg_5") && !has(s, 0, "resp_4"));
    ek_buf out = {0};
    assert_int_equal(ek_conversation_put(&out, s, 0, conversation), EK_OK);
    assert_non_null(strstr(out.data, "\"created_at\":77,\"metadata\":{\"a\":\"b\"}"));
    assert_int_equal(ek_conversation_put_item(&out, s, 0, conversation, "msg_1"), EK_OK);
    ek_buf_fini(&out);
    assert_int_equal(ek_conversation_set_metadata(s, 0, conversation, "{}"), EK_OK); /* the file of before goes */
    assert_int_equal(ek_conversation_delete(s, 0, conversation), EK_OK);
    ek_response_store_flush(s);
    assert_int_equal(files(dir, NULL), 5);
    ek_response_store_close(s);
    remove_dir(dir);
}

/* Every byte of a record in turn: it is the one of before or none, and the other one stays. */
static void damage_costs_the_damaged(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[PATH];
    struct stat st;
    ek_buf whole = {0};
    ek_response_store *s = open_in(dir, 0);
    put(s, 0, "resp_1", NULL, "one");
    ek_response_store_close(s);
    assert_int_equal(files(dir, path), 1);
    assert_int_equal(ek_file_read(&whole, path, MIB), EK_OK);
    s = open_in(dir, 0);
    put(s, 0, "resp_2", NULL, "two");
    ek_response_store_close(s);
    for (size_t i = 0; i <= 2 * whole.len; i++) { /* changed, then cut */
        const size_t n = i <= whole.len ? whole.len : i - whole.len - 1;
        const size_t at = i < whole.len ? i : 0;
        if (i < whole.len) whole.data[at] ^= 0x41;
        assert_int_equal(ek_file_replace(path, whole.data, n, 0600), EK_OK);
        s = open_in(dir, 0);
        const bool good = i == whole.len, version = at == 7 && i < whole.len;
        if (has(s, 0, "resp_1") != good || !has(s, 0, "resp_2")) fail_msg("byte %zu of %zu", i, whole.len);
        assert_int_equal(strstr(logged, "event=store_skipped") != NULL, !good);
        assert_int_equal(stat(path, &st) == 0, good || version); /* of a later version: it stays */
        ek_response_store_close(s);
        if (i < whole.len) whole.data[at] ^= 0x41;
    }
    ek_buf_fini(&whole);
    remove_dir(dir);
}

/* Everything that a record's file lets be read, of an entry that was taken. */
static void read_everything(ek_response_store *s, ek_response_record *r)
{
    char id[64];
    const uint64_t owner = r->owner;
    snprintf(id, sizeof id, "%s", r->id);
    const int n_items = r->r.items.n;
    if (!ek_response_store_put_read(s, r)) return;
    const ek_api_limits limits = {.responses = s, .owner = owner};
    json_t *list = json_array(), *item;
    (void)ek_response_store_items(&limits, id, list);
    json_decref(list);
    for (int i = 0; i < 2 && n_items > 0; i++) {
        const char *name = i ? "in_resp_1" : "out_resp_1";
        (void)ek_response_store_item(&limits, name, strlen(name), &item);
        json_decref(item);
    }
    (void)ek_response_store_delete(s, owner, id);
}

/* Records whose sum and name are right, whatever else is wrong in them: refused, or read without a fault. For runs
 * under a sanitizer, too. */
static void a_sum_alone_is_not_trusted(void **state)
{
    (void)state;
    enum { SUM = 8, SUMMED = 40, ID_BYTES = 64, HEAD = 120 };
    char *dir = temp_dir(), path[PATH], name[EK_RESPONSE_RECORD_NAME], id[64] = "";
    static const uint8_t flips[] = {0x01, 0x08, 0x20, 0x80, 0xff};
    ek_buf whole = {0};
    int read = 0, refused = 0;
    ek_response_store *s = open_in(dir, 0);
    put(s, 0, "resp_1", NULL, "one");
    ek_response_store_close(s);
    assert_int_equal(files(dir, path), 1);
    assert_int_equal(ek_file_read(&whole, path, MIB), EK_OK);
    s = ek_response_store_open(MAX, MIB);
    for (size_t i = SUMMED; i < whole.len; i++)
        for (size_t k = 0; k < sizeof flips; k++) {
            uint64_t owner, n_id;
            ek_response_record r;
            whole.data[i] = (char)(whole.data[i] ^ flips[k]);
            memcpy(&owner, whole.data + SUMMED, sizeof owner);
            memcpy(&n_id, whole.data + ID_BYTES, sizeof n_id);
            if (n_id < sizeof id) snprintf(id, sizeof id, "%.*s", (int)n_id, whole.data + HEAD);
            ek_response_record_name(name, owner, id);
            ek_sha256((uint8_t *)whole.data + SUM, whole.data + SUMMED, whole.len - SUMMED);
            if (ek_response_record_read(&r, s, name, whole.data, whole.len)) {
                refused++;
            } else {
                read++;
                read_everything(s, &r);
                ek_response_record_fini(&r);
            }
            whole.data[i] = (char)(whole.data[i] ^ flips[k]);
        }
    assert_true(read > 100 && refused > 500);
    ek_response_store_close(s);
    ek_buf_fini(&whole);
    remove_dir(dir);
}

/* A good record under another one's name, and what is no record at all. */
static void others_files_are_nothing(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[PATH], other[PATH];
    ek_response_store *s = open_in(dir, 0);
    put(s, 0, "resp_1", NULL, "one");
    ek_response_store_close(s);
    assert_int_equal(files(dir, path), 1);
    snprintf(other, sizeof other, "%s/%032d.response", dir, 5);
    assert_int_equal(rename(path, other), 0);
    snprintf(other, sizeof other, "%s/%032d.response.part", dir, 6);
    assert_int_equal(ek_file_replace(other, "x", 1, 0600), EK_OK);
    snprintf(other, sizeof other, "%s/notes.response.txt", dir);
    assert_int_equal(ek_file_replace(other, "x", 1, 0600), EK_OK);
    snprintf(path, sizeof path, "%s/%032d.response", dir, 7);
    assert_int_equal(symlink(other, path), 0);
    s = open_in(dir, 0);
    assert_false(has(s, 0, "resp_1"));
    assert_non_null(strstr(logged, "another one's file"));
    assert_int_equal(files(dir, NULL), 2); /* the link and the notes */
    ek_response_store *second = ek_response_store_open(MAX, MIB);
    assert_int_equal(ek_response_store_keep(second, dir, 0), EK_EBUSY);
    ek_response_store_close(second);
    ek_response_store_close(s);
    second = ek_response_store_open(MAX, MIB);
    assert_int_equal(ek_response_store_keep(second, other, 0), EK_EIO); /* a file */
    ek_response_store_close(second);
    remove_dir(dir);
}

/* The folder has no more than memory has, also where the bounds were others before. */
static void bounds_hold(void **state)
{
    (void)state;
    char *dir = temp_dir(), id[32];
    ek_response_store *s = open_in(dir, 0);
    for (int i = 0; i < 3 * MAX; i++) {
        snprintf(id, sizeof id, "resp_%d", i);
        put(s, 0, id, NULL, "x");
        if (i % 16 == 0) ek_response_store_flush(s);
    }
    ek_response_store_flush(s);
    assert_int_equal(files(dir, NULL), MAX);
    ek_response_store_close(s);
    s = ek_response_store_open(10, MIB);
    assert_int_equal(ek_response_store_keep(s, dir, 0), EK_OK);
    ek_response_store_flush(s);
    assert_int_equal(files(dir, NULL), 10);
    for (int i = 0; i < 3 * MAX; i++) { /* those that came last */
        snprintf(id, sizeof id, "resp_%d", i);
        assert_int_equal(has(s, 0, id), i >= 3 * MAX - 10);
    }
    ek_response_store_close(s);
    remove_dir(dir);
}

/* A record of a response that was changed so many seconds ago. */
static void lay(const char *dir, uint64_t owner, const char *id, const char *previous, double age)
{
    char name[EK_RESPONSE_RECORD_NAME], path[PATH];
    ek_response_entry e = {.owner_id = owner, .id = ek_strdup(id), .changed = ek_unix_now() - age};
    if (previous) e.previous = ek_strdup(previous);
    ek_buf_str(&e.input, "[]");
    ek_buf_fmt(&e.response, "{\"id\":\"%s\"}", id);
    ek_response_record_name(name, owner, id);
    snprintf(path, sizeof path, "%s/%s.response", dir, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ek_response_record_write(fd, &e), EK_OK);
    close(fd);
    free(e.id), free(e.previous);
    ek_buf_fini(&e.input), ek_buf_fini(&e.response);
}

static void the_old_go(void **state)
{
    (void)state;
    char *dir = temp_dir();
    lay(dir, 0, "resp_1", NULL, 2000);
    lay(dir, 0, "resp_2", NULL, 500);
    ek_response_store *s = open_in(dir, 1000);
    assert_false(has(s, 0, "resp_1"));
    assert_true(has(s, 0, "resp_2"));
    ek_response_store_close(s);
    assert_int_equal(files(dir, NULL), 1);
    remove_dir(dir);
}

/* Without its beginning a conversation cannot go on: all of it is as old as its latest response. */
static void a_conversation_is_as_old_as_its_end(void **state)
{
    (void)state;
    char *dir = temp_dir(), id[32], previous[32] = "";
    lay(dir, 0, "resp_end", "resp_middle", 10); /* the order of the files is any */
    lay(dir, 0, "resp_middle", "resp_begin", 1500);
    lay(dir, 0, "resp_begin", "resp_deleted", 2000);
    lay(dir, 0, "resp_branch", "resp_begin", 1800);
    lay(dir, 7, "resp_begin", NULL, 2000); /* another's of the same name */
    lay(dir, 0, "resp_a", "resp_b", 2000); /* a circle, as no server makes it */
    lay(dir, 0, "resp_b", "resp_a", 1500);
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof id, "resp_n%d", i);
        lay(dir, 0, id, *previous ? previous : NULL, 2000 - 40 * i);
        snprintf(previous, sizeof previous, "%s", id);
    }
    ek_response_store *s = open_in(dir, 1000);
    assert_true(has(s, 0, "resp_end") && has(s, 0, "resp_middle") && has(s, 0, "resp_begin"));
    assert_false(has(s, 0, "resp_branch") || has(s, 7, "resp_begin") || has(s, 0, "resp_a") || has(s, 0, "resp_b"));
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof id, "resp_n%d", i);
        assert_true(has(s, 0, id));
    }
    assert_int_equal(ek_response_store_delete(s, 0, "resp_end"), EK_OK);
    ek_response_store_close(s);
    s = open_in(dir, 1000);
    assert_false(has(s, 0, "resp_middle") || has(s, 0, "resp_begin"));
    ek_response_store_close(s);
    assert_int_equal(files(dir, NULL), 40);
    remove_dir(dir);
}

/* Others could leave responses in it, for any key. */
static void the_folder_is_its_users_alone(void **state)
{
    (void)state;
    char *dir = temp_dir();
    static const unsigned modes[] = {0770, 0702, 0777, 0755, 0700};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        ek_response_store *s = ek_response_store_open(MAX, MIB);
        assert_int_equal(chmod(dir, modes[i]), 0);
        assert_int_equal(ek_response_store_keep(s, dir, 0), modes[i] & 022 ? EK_EINVAL : EK_OK);
        ek_response_store_close(s);
    }
    if (geteuid() == 0) { /* another's */
        ek_response_store *s = ek_response_store_open(MAX, MIB);
        assert_int_equal(chown(dir, 12345, 12345), 0);
        assert_int_equal(ek_response_store_keep(s, dir, 0), EK_EINVAL);
        assert_non_null(strstr(ek_err_text(), "another user's"));
        ek_response_store_close(s);
        assert_int_equal(chown(dir, 0, 0), 0);
    }
    remove_dir(dir);
}

/* What could not be written, as on a full disk, is written once it can be; others of its time, too. */
static void what_failed_is_written_later(void **state)
{
    (void)state;
    char *dir = temp_dir(), name[EK_RESPONSE_RECORD_NAME], in_the_way[PATH], wall[PATH + 8];
    ek_response_store *s = open_in(dir, 0);
    ek_response_record_name(name, 0, "resp_1");
    snprintf(in_the_way, sizeof in_the_way, "%s/%s.response.part", dir, name);
    snprintf(wall, sizeof wall, "%s/x", in_the_way); /* a folder that is not empty, where the file would be written */
    assert_int_equal(mkdir(in_the_way, 0700), 0);
    assert_int_equal(mkdir(wall, 0700), 0);
    put(s, 0, "resp_1", NULL, "one");
    put(s, 0, "resp_2", NULL, "two");
    for (int i = 0; i < 500 && !strstr(logged, "event=store_failed"); i++) usleep(10000);
    assert_non_null(strstr(logged, "event=store_failed"));
    assert_int_equal(rmdir(wall) | rmdir(in_the_way), 0);
    ek_response_store_flush(s);
    assert_int_equal(files(dir, NULL), 2);
    ek_response_store_close(s);
    remove_dir(dir);
}

/* Threads that put, replace and delete: the files are as the store is. */
enum { THREADS = 4, IDS = 24, TURNS = 400 };
static ek_response_store *busy;

static void *change(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    char id[32], text[32];
    for (int i = 0; i < TURNS; i++) {
        seed = seed * 1103515245u + 12345u;
        snprintf(id, sizeof id, "resp_%u", (seed >> 16) % IDS);
        snprintf(text, sizeof text, "%u", seed);
        if ((seed >> 8) % 3) put(busy, (seed >> 20) & 1, id, NULL, text);
        else (void)ek_response_store_delete(busy, (seed >> 20) & 1, id);
    }
    return NULL;
}

static void text_of(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id)
{
    ek_span text;
    ek_response_held *held;
    if (ek_response_store_hold(s, owner, id, false, &text, &held)) return;
    ek_buf_add(out, text.p, text.n);
    ek_response_store_release(held);
}

static void all_of(ek_buf *out, ek_response_store *s)
{
    char id[32];
    for (int i = 0; i < 2 * IDS; i++) {
        snprintf(id, sizeof id, "resp_%d", i / 2);
        ek_buf_fmt(out, "%d.%s ", i & 1, id);
        text_of(out, s, i & 1, id);
    }
}

static void files_are_as_the_store(void **state)
{
    (void)state;
    char *dir = temp_dir();
    pthread_t t[THREADS];
    ek_buf before = {0}, after = {0};
    busy = open_in(dir, 0);
    for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, change, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    ek_response_store_flush(busy);
    all_of(&before, busy);
    ek_response_store_close(busy);
    ek_response_store *s = open_in(dir, 0);
    all_of(&after, s);
    ek_response_store_close(s);
    assert_string_equal(before.data, after.data);
    ek_buf_fini(&before);
    ek_buf_fini(&after);
    remove_dir(dir);
}

int main(void)
{
    ek_log_sink *log = ek_log_sink_open(keep_log, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survives),
        cmocka_unit_test(damage_costs_the_damaged),
        cmocka_unit_test(a_sum_alone_is_not_trusted),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(others_files_are_nothing),
        cmocka_unit_test(what_failed_is_written_later),
        cmocka_unit_test(the_old_go),
        cmocka_unit_test(a_conversation_is_as_old_as_its_end),
        cmocka_unit_test(the_folder_is_its_users_alone),
        cmocka_unit_test(files_are_as_the_store),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ek_log_sink_close(log);
    return failed;
}
