/* The log of receipts: what somebody may do to its file, and what its proofs say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/files.h"
#include "base/file.h"
#include "receipts/log.h"

static ek_signing_key *key, *other_key;
static char *dir, path[200];

static ek_hash entry(size_t i)
{
    ek_hash h = {{(uint8_t)i, (uint8_t)(i >> 8), 9}};
    return h;
}

static ek_receipt_log *open_log(void)
{
    ek_receipt_log *l;
    const ek_err err = ek_receipt_log_open(&l, path, "test/1", false);
    if (err) print_message("%s\n", ek_err_text());
    assert_int_equal(err, EK_OK);
    return l;
}

static void add(ek_receipt_log *l, size_t from, size_t to)
{
    size_t index;
    for (size_t i = from; i < to; i++) {
        const ek_hash h = entry(i);
        assert_int_equal(ek_receipt_log_add(l, &h, NULL, &index), EK_OK);
        assert_int_equal(index, i);
    }
}

static void fill(size_t n, bool mark)
{
    size_t size;
    ek_hash root;
    unlink(path);
    ek_receipt_log *l = open_log();
    add(l, 0, n);
    if (mark) assert_int_equal(ek_receipt_log_mark(l, 1795952096, &size, &root), EK_OK);
    ek_receipt_log_close(l);
}

static void a_log_goes_on_after_a_restart(void **state)
{
    size_t size, again;
    ek_hash root, other;
    (void)state;
    fill(5, true);
    ek_receipt_log *l = open_log(), *second;
    assert_int_equal(ek_receipt_log_size(l), 5);
    assert_int_equal(ek_receipt_log_open(&second, path, "test/1", false), EK_EBUSY);
    assert_int_equal(ek_receipt_log_open(&second, path, "", true), EK_OK);
    ek_receipt_log_close(second);
    add(l, 5, 9);
    assert_int_equal(ek_receipt_log_mark(l, 1795952096, &size, &root), EK_OK);
    assert_int_equal(ek_receipt_log_mark(l, 1795952097, &again, &other), EK_OK); /* nothing new: no line */
    assert_int_equal(size, 9);
    ek_hash leaf[9];
    for (size_t i = 0; i < 9; i++) {
        const ek_hash h = entry(i);
        leaf[i] = ek_tree_leaf(h.h, EK_HASH);
    }
    const ek_hash want = ek_tree_root(leaf, 9);
    assert_true(ek_hash_equal(&root, &want) && ek_hash_equal(&other, &want));
    ek_receipt_log_close(l);
    ek_buf text = {0};
    assert_int_equal(ek_file_read(&text, path, 1 << 20), EK_OK);
    int lines = 0;
    for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
    assert_int_equal(lines, 1 + 9 + 2);
    ek_buf_fini(&text);
}

/* kill -9 within a line: wherever the file ends, the whole lines count, and the log goes on. */
static void a_torn_line_is_cut_off(void **state)
{
    ek_buf whole = {0};
    (void)state;
    fill(3, false);
    assert_int_equal(ek_file_read(&whole, path, 1 << 20), EK_OK);
    for (size_t n = 0; n <= whole.len; n++) {
        size_t lines = 0, index;
        for (size_t i = 0; i < n; i++) lines += whole.data[i] == '\n';
        assert_int_equal(ek_file_replace(path, whole.data, n, 0600), EK_OK);
        ek_receipt_log *l = open_log();
        assert_int_equal(ek_receipt_log_size(l), lines > 0 ? lines - 1 : 0);
        const ek_hash h = entry(77);
        assert_int_equal(ek_receipt_log_add(l, &h, NULL, &index), EK_OK);
        ek_receipt_log_close(l);
        l = open_log();
        assert_int_equal(ek_receipt_log_size(l), lines > 0 ? lines : 1);
        ek_receipt_log_close(l);
    }
    ek_buf_fini(&whole);
}

/* Lines 0 to 6 of the file in this order, -1 at the end; a line is changed by its digit. */
static void rewrite(const char *text, const int *order)
{
    const char *line[8];
    ek_buf out = {0};
    for (int i = 0; i < 8; i++) {
        line[i] = text;
        text = strchr(text, '\n');
        text = text ? text + 1 : "";
    }
    for (; *order >= 0; order++) ek_buf_add(&out, line[*order], strcspn(line[*order], "\n") + 1);
    assert_int_equal(ek_file_replace(path, out.data, out.len, 0600), EK_OK);
    ek_buf_fini(&out);
}

static void refused(const char *why)
{
    ek_receipt_log *l;
    assert_int_equal(ek_receipt_log_open(&l, path, "test/1", false), EK_EFORMAT);
    assert_null(l);
    if (!strstr(ek_err_text(), why)) print_message("%s\n", ek_err_text());
    assert_non_null(strstr(ek_err_text(), why));
}

static void a_changed_file_is_refused(void **state)
{
    static const int orders[][9] = {{0, 1, 3, 4, 5, 6, -1},       /* an entry removed */
                                    {0, 2, 1, 3, 4, 5, 6, -1},    /* swapped */
                                    {0, 1, 1, 2, 3, 4, 5, 6, -1}, /* twice */
                                    {1, 2, 3, -1},                /* without its head */
                                    {0, 0, 1, -1}};
    ek_buf text = {0};
    (void)state;
    fill(5, true); /* the head, five entries, a root */
    assert_int_equal(ek_file_read(&text, path, 1 << 20), EK_OK);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        rewrite(text.data, orders[i]);
        refused(i == 3 ? "line 1" : "line");
    }
    for (size_t i = 0; i + 1 < text.len; i++) { /* any digit, but of the last line: nothing names that */
        if (i > 300 && !strchr(text.data + i, '\n')[1]) break;
        const char was = text.data[i];
        if (was == '\n') continue;
        text.data[i] = was == '0' ? '1' : '0';
        assert_int_equal(ek_file_replace(path, text.data, text.len, 0600), EK_OK);
        ek_receipt_log *l;
        if (!ek_receipt_log_open(&l, path, "test/1", false)) print_message("byte %zu of %s\n", i, text.data);
        assert_null(l);
        text.data[i] = was;
    }
    ek_buf_fini(&text);
}

/* A disk that is full in the middle of a line: the line is not there, and the log goes on. */
static void a_full_disk_leaves_no_half_line(void **state)
{
    (void)state;
    fill(2, false);
    const pid_t child = fork();
    if (child == 0) {
        size_t index;
        ek_receipt_log *l;
        const ek_hash h = entry(2);
        ek_map m;
        signal(SIGXFSZ, SIG_IGN);
        if (ek_receipt_log_open(&l, path, "test/1", false) || ek_map_open(&m, path)) _exit(1);
        const struct rlimit small = {m.size + 50, m.size + 50};
        if (setrlimit(RLIMIT_FSIZE, &small)) _exit(2);
        if (ek_receipt_log_add(l, &h, NULL, &index) != EK_EIO) _exit(3);
        if (ek_receipt_log_ready(l) != EK_EIO) _exit(4); /* the next reply does not begin */
        ek_map after;
        if (ek_map_open(&after, path) || after.size != m.size || ek_receipt_log_size(l) != 2) _exit(5);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ek_receipt_log *l = open_log();
    assert_int_equal(ek_receipt_log_size(l), 2);
    add(l, 2, 4);
    ek_receipt_log_close(l);
}

static bool no_cuts; /* as of a file that may only grow */

int ftruncate(int fd, off_t size)
{
    if (no_cuts) errno = EPERM;
    return no_cuts ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

/* Half a line that cannot be cut off yet: nothing is written behind it until it is. */
static void no_line_is_glued_to_half_a_line(void **state)
{
    (void)state;
    fill(2, false);
    const pid_t child = fork();
    if (child == 0) {
        size_t index;
        ek_receipt_log *l;
        const ek_hash h = entry(2);
        ek_map m, after;
        signal(SIGXFSZ, SIG_IGN);
        if (ek_receipt_log_open(&l, path, "test/1", false) || ek_map_open(&m, path)) _exit(1);
        const struct rlimit small = {m.size + 50, RLIM_INFINITY}, large = {RLIM_INFINITY, RLIM_INFINITY};
        no_cuts = true;
        if (setrlimit(RLIMIT_FSIZE, &small)) _exit(2);
        if (ek_receipt_log_add(l, &h, NULL, &index) != EK_EIO) _exit(3);
        if (setrlimit(RLIMIT_FSIZE, &large)) _exit(4);
        if (ek_receipt_log_ready(l) != EK_EIO) _exit(5);
        for (int i = 0; i < 2; i++)
            if (ek_receipt_log_add(l, &h, NULL, &index) != EK_EIO) _exit(6);
        if (ek_receipt_log_ready(l) != EK_EIO) _exit(7);
        if (ek_map_open(&after, path) || after.size != m.size + 50) _exit(8);
        no_cuts = false;
        if (ek_receipt_log_add(l, &h, NULL, &index) || index != 2 || ek_receipt_log_ready(l)) _exit(9);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ek_receipt_log *l = open_log();
    assert_int_equal(ek_receipt_log_size(l), 3);
    add(l, 3, 4);
    ek_receipt_log_close(l);
}

/* --- proofs --- */

static char *receipt_in(ek_receipt_log *l)
{
    static int32_t tokens[] = {1, 2};
    static ek_hash rows[2];
    ek_buf out = {0};
    const ek_opening o = {.prompt = tokens, .n_prompt = 2, .reply = tokens, .n_reply = 2, .row = rows};
    ek_statement s = {.profile = (char *)"p", .program = (char *)"1", .api = (char *)"/a", .log = (char *)"test/1"};
    memset(s.weights, 'a', 64), memset(s.tokenizer, 'b', 64);
    s.ends.context = 8;
    snprintf(s.reply.finish, sizeof s.reply.finish, "stop");
    ek_statement_time(s.time, 1795952096);
    ek_receipt_commit(&s, &o, ek_signing_key_public(key), "", 0);
    assert_int_equal(ek_receipt_write(&out, &s, &o, key, l), EK_OK);
    return out.data;
}

static bool logged(const char *text, const char *kept, const ek_signing_key *by, size_t *size)
{
    ek_receipt r;
    bool good = false;
    assert_int_equal(ek_receipt_read(&r, text, strlen(text), 0, NULL), EK_OK);
    const ek_err err = ek_receipt_logged(&good, size, &r, kept, kept ? strlen(kept) : 0, ek_signing_key_public(by));
    ek_receipt_fini(&r);
    return !err && good;
}

/* As GET /v1/receipts/ID makes it. */
static char *with_path(const char *text, ek_receipt_log *l, size_t index, size_t size)
{
    ek_buf out = {0}, checkpoint = {0};
    ek_buf_add(&out, text, strlen(text) - 2);
    ek_buf_char(&out, ',');
    assert_int_equal(ek_receipt_log_checkpoint(&checkpoint, l, &size, key), EK_OK);
    assert_int_equal(ek_receipt_log_prove(&out, l, index, size, &checkpoint), EK_OK);
    ek_buf_fini(&checkpoint);
    ek_buf_str(&out, "}}");
    return out.data;
}

static void a_receipt_is_proven_before_a_checkpoint(void **state)
{
    size_t size, now;
    ek_hash root, first;
    ek_buf kept = {0}, early = {0}, all = {0};
    (void)state;
    unlink(path);
    ek_receipt_log *l = open_log();
    add(l, 0, 3);
    first = ek_receipt_log_root(l, &size);
    assert_int_equal(ek_checkpoint_write(&early, "test/1", size, &first, key), EK_OK);
    char *text = receipt_in(l);
    add(l, 4, 7);
    root = ek_receipt_log_root(l, &now);
    assert_int_equal(ek_checkpoint_write(&kept, "test/1", now, &root, key), EK_OK);
    add(l, 7, 12);
    assert_false(logged(text, NULL, key, &size)); /* no path yet */
    char *whole = with_path(text, l, 3, 0), *before = with_path(text, l, 3, now), *wrong = with_path(text, l, 4, now);
    assert_true(logged(whole, NULL, key, &size));
    assert_int_equal(size, 12);
    assert_true(logged(before, kept.data, key, &size));
    assert_int_equal(size, 7);
    assert_false(logged(whole, kept.data, key, &size));        /* a path of another size */
    assert_false(logged(before, early.data, key, &size));      /* it came later: a stolen key, back-dated */
    assert_false(logged(wrong, kept.data, key, &size));        /* of another entry */
    assert_false(logged(before, kept.data, other_key, &size)); /* a checkpoint of somebody else */
    kept.data[strlen("test/1\n")]++;
    assert_false(logged(before, kept.data, key, &size)); /* that was changed */
    assert_int_equal(ek_receipt_log_prove(&all, l, 12, 12, &kept), EK_EINVAL);
    assert_int_equal(ek_receipt_log_prove(&all, l, 3, 13, &kept), EK_EINVAL);
    size = 13;
    assert_int_equal(ek_receipt_log_checkpoint(&all, l, &size, key), EK_EINVAL);
    assert_int_equal(ek_receipt_log_extends(&all, l, 5, 4, key), EK_EINVAL);
    assert_int_equal(ek_receipt_log_extends(&all, l, 3, 0, key), EK_OK);
    assert_non_null(strstr(all.data, "\"from\":3,\"to\":12,\"proof\":["));
    free(text), free(whole), free(before), free(wrong);
    ek_buf_fini(&kept), ek_buf_fini(&early), ek_buf_fini(&all);
    ek_receipt_log_close(l);
}

static void a_checkpoint_has_one_form(void **state)
{
    static const char *const bad[] = {"",
                                      "a\n1\n",
                                      "a\n01\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n",
                                      "a\n-1\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n",
                                      "a\n1\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n\n",
                                      "a\n1\nAAAA\n\n",
                                      "a\n1\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\nx\n"};
    const ek_hash zero = {{0}};
    ek_hash root;
    size_t size;
    bool good;
    ek_buf note = {0};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ek_checkpoint_read(&size, &root, &good, bad[i], strlen(bad[i]), ek_signing_key_public(key)),
                         EK_EFORMAT);
    assert_int_equal(ek_checkpoint_write(&note, "a", 1, &zero, key), EK_OK);
    assert_int_equal(ek_checkpoint_read(&size, &root, &good, note.data, note.len, ek_signing_key_public(key)), EK_OK);
    assert_true(good);
    ek_buf_str(&note, "\xe2\x80\x94 witness AAAAAAAA\n"); /* others may sign it too */
    assert_int_equal(ek_checkpoint_read(&size, &root, &good, note.data, note.len, ek_signing_key_public(key)), EK_OK);
    assert_true(good);
    ek_buf_fini(&note);
}

static int open_all(void **state)
{
    uint8_t a[32] = {1}, b[32] = {2};
    (void)state;
    dir = temp_dir();
    snprintf(path, sizeof path, "%s/log", dir);
    return ek_signing_key_of(&key, a) || ek_signing_key_of(&other_key, b);
}

static int close_all(void **state)
{
    (void)state;
    ek_signing_key_close(key), ek_signing_key_close(other_key);
    remove_dir(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_goes_on_after_a_restart),   cmocka_unit_test(a_torn_line_is_cut_off),
        cmocka_unit_test(a_changed_file_is_refused),       cmocka_unit_test(a_full_disk_leaves_no_half_line),
        cmocka_unit_test(no_line_is_glued_to_half_a_line), cmocka_unit_test(a_receipt_is_proven_before_a_checkpoint),
        cmocka_unit_test(a_checkpoint_has_one_form),
    };
    if (!ek_keys_built()) {
        puts("libcrypto is missing");
        return 77;
    }
    return cmocka_run_group_tests(tests, open_all, close_all);
}
