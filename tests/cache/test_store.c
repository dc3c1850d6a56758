/* cache: pages on disk come back as they were, or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/files.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "bed.h"
#include "cache/store.h"

static char *dir;
static char path[512];

static ek_store_backend open_with(const char *key, double max_bytes)
{
    ek_store_backend b;
    assert_int_equal(ek_store_sqlite_open(&b, dir, key, max_bytes, &bed_layout), EK_OK);
    return b;
}

static void write_n(ek_store_backend *b, uint64_t seed, int n)
{
    for (int i = 0; i < n; i++) {
        ek_store_page page, *one = &page;
        bed_fill(&page, seed, i);
        b->write(b->arg, &one, 1);
    }
}

/* How many of n pages of a prompt are there, in both kinds; whatever is there must be right. */
static int read_n(ek_store_backend *b, uint64_t seed, int n)
{
    int good = 0;
    for (int i = 0; i < n; i++) good += bed_read(b, seed, i);
    return good;
}

static void close_it(ek_store_backend *b)
{
    b->close(b->arg);
}

static void remove_all(void)
{
    DIR *d = opendir(dir);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        char p[1024];
        snprintf(p, sizeof p, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.') unlink(p);
    }
    closedir(d);
}

/* path = the file of the only key in the folder. */
static void find_path(void)
{
    DIR *d = opendir(dir);
    path[0] = '\0';
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (strstr(e->d_name, ".sqlite") && !strchr(e->d_name, '-'))
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    closedir(d);
    assert_true(path[0]);
}

static void pages_survive_a_restart(void **state)
{
    (void)state;
    remove_all();
    ek_store_backend b = open_with("key", 1e9);
    assert_int_equal(read_n(&b, 1, 5), 0);
    write_n(&b, 1, 5);
    write_n(&b, 3, 4); /* with contents */
    write_n(&b, 1, 5); /* twice is once */
    assert_int_equal(atomic_load(&b.counts->written), 18);
    close_it(&b);
    b = open_with("key", 1e9);
    assert_int_equal(read_n(&b, 1, 6), 10);
    assert_int_equal(read_n(&b, 3, 6), 8);
    assert_int_equal(read_n(&b, 2, 6), 0);
    ek_store_page page, *one = &page; /* forgotten */
    bed_fill(&page, 1, 2);
    page.has[0] = page.has[1] = false;
    b.write(b.arg, &one, 1);
    assert_int_equal(read_n(&b, 1, 6), 8);
    close_it(&b);
    ek_store_backend other = open_with("another model", 1e9);
    assert_int_equal(read_n(&other, 1, 5), 0);
    close_it(&other);
}

/* Another arithmetic or format of keys and values is another key (numerics id): its pages are not read and not lost,
 * and not read either where its file lies under the name of today's. */
static void pages_of_another_version_are_ignored(void **state)
{
    (void)state;
    static const char before[] = "model m, ek2 w=q4.64 a=auto kv=f16:f16",
                      now[] = "model m, ek3 w=q4.64 a=auto kv=i12:i12";
    char old[sizeof path];
    remove_all();
    ek_store_backend b = open_with(now, 1e9);
    find_path();
    snprintf(old, sizeof old, "%s", path); /* the name of today's */
    close_it(&b);
    remove_all();
    b = open_with(before, 1e9);
    write_n(&b, 1, 5);
    close_it(&b);
    b = open_with(now, 1e9);
    assert_int_equal(read_n(&b, 1, 5), 0);
    close_it(&b);
    b = open_with(before, 1e9);
    assert_int_equal(read_n(&b, 1, 5), 10);
    close_it(&b);
    assert_int_equal(unlink(old), 0);
    find_path();
    assert_int_equal(rename(path, old), 0);
    b = open_with(now, 1e9);
    assert_int_equal(read_n(&b, 1, 5), 0);
    write_n(&b, 2, 3);
    assert_int_equal(read_n(&b, 2, 3), 6);
    close_it(&b);
    remove_all();
}

/* The same name, other tokens: impossible, unless the file lies. */
static void a_record_under_a_wrong_name_is_not_read(void **state)
{
    (void)state;
    remove_all();
    ek_store_backend b = open_with("key", 1e9);
    ek_store_page page, *one = &page;
    bed_fill(&page, 1, 0);
    page.token[63] ^= 1;
    b.write(b.arg, &one, 1);
    assert_int_equal(read_n(&b, 1, 1), 0);
    assert_int_equal(atomic_load(&b.counts->damaged), 2);
    write_n(&b, 1, 1); /* it was dropped: the right one has its place */
    assert_int_equal(read_n(&b, 1, 1), 2);
    close_it(&b);
}

static void the_oldest_go_at_the_limit(void **state)
{
    (void)state;
    remove_all();
    ek_store_backend b = open_with("key", 600000); /* ten pages of both kinds */
    for (uint64_t seed = 0; seed < 30; seed++) {
        write_n(&b, seed, 3);
        assert_true(atomic_load(&b.counts->bytes) <= 600000);
    }
    assert_true(atomic_load(&b.counts->evicted) > 100);
    int left = 0;
    for (uint64_t seed = 0; seed < 30; seed++) left += read_n(&b, seed, 3);
    assert_true(left >= 16 && left <= 22);
    close_it(&b);
    b = open_with("key", 200000); /* a lower limit next time */
    assert_true(atomic_load(&b.counts->bytes) <= 200000);
    close_it(&b);
}

static void two_processes_do_not_share_a_file(void **state)
{
    (void)state;
    remove_all();
    ek_store_backend a = open_with("key", 1e9), b;
    assert_int_equal(ek_store_sqlite_open(&b, dir, "key", 1e9, &bed_layout), EK_EBUSY);
    assert_non_null(strstr(ek_err_text(), "in use by another process"));
    close_it(&a);
    assert_int_equal(ek_store_sqlite_open(&b, "/proc/nowhere/cache", "key", 1e9, &bed_layout), EK_EIO);
}

static off_t size_of(const char *p)
{
    struct stat st;
    return stat(p, &st) == 0 ? st.st_size : 0;
}

/* Flipped bits anywhere, cut anywhere, filled with rubbish: it opens, what it gives is right, and it can be written. */
static void damage_never_reaches_a_reader(void **state)
{
    (void)state;
    enum { CASES = 150 };
    int lost = 0, anew = 0, kept = 0;
    remove_all();
    ek_store_backend b = open_with("key", 1e9);
    for (uint64_t s = 1; s <= 4; s++) write_n(&b, s, 4);
    close_it(&b);
    find_path();
    off_t size = size_of(path);
    uint8_t *good = malloc((size_t)size), *bad = malloc((size_t)size);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(good, 1, (size_t)size, f), size);
    fclose(f);
    for (uint64_t c = 0; c < CASES; c++) {
        uint64_t r = ek_mix64(c + 1234);
        size_t n = (size_t)size;
        memcpy(bad, good, n);
        if (c % 3 == 0) n = (size_t)(r % (uint64_t)size);
        else if (c % 3 == 1) /* in the structure: the first pages, and the beginning of others */
            for (int i = 0; i < 8; i++) {
                uint64_t at = ek_mix64(r + (uint64_t)i);
                bad[(at % (n / 32768)) * 32768 + (at >> 32) % 200] ^= (uint8_t)(1 + (at >> 56) % 255);
            }
        else bad[r % n] ^= (uint8_t)(1 + (r >> 56) % 255);
        if (c == 1) memset(bad, 0x5a, n);
        f = fopen(path, "wb");
        assert_int_equal(fwrite(bad, 1, n, f), n);
        fclose(f);
        ek_store_backend d = open_with("key", 1e9);
        int found = 0;
        for (uint64_t s = 1; s <= 4; s++) found += read_n(&d, s, 4);
        lost += 32 - found;
        kept += found;
        anew += found == 0;
        write_n(&d, 9, 2);
        for (uint64_t s = 1; s <= 4; s++) write_n(&d, s, 4);
        if (read_n(&d, 9, 2) != 4) { /* damage that only this write met: the next one finds a good file */
            write_n(&d, 9, 2);
            assert_int_equal(read_n(&d, 9, 2), 4);
        }
        close_it(&d);
    }
    printf("%d damaged files: %d pages read, %d lost, %d files begun anew\n", CASES, kept, lost, anew);
    assert_true(lost > 100 && anew > 10 && kept > 1000);
    free(good);
    free(bad);
}

/* No file may grow beyond this: as on a full disk, a write is an error. */
static void a_full_disk_loses_pages_and_nothing_else(void **state)
{
    (void)state;
    struct rlimit before, small;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (rlim_t limit = 0; limit < 3000000; limit += limit < 300000 ? 32768 : 330001) {
        remove_all();
        small = before;
        small.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        ek_store_backend b;
        assert_int_equal(ek_store_sqlite_open(&b, dir, "key", 1e9, &bed_layout), EK_OK);
        for (uint64_t s = 1; s <= 8; s++) write_n(&b, s, 4);
        int found = 0;
        for (uint64_t s = 1; s <= 8; s++) found += read_n(&b, s, 4);
        assert_true(found < 64 || limit > 2500000);
        close_it(&b);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        b = open_with("key", 1e9);
        int again = 0;
        for (uint64_t s = 1; s <= 8; s++) again += read_n(&b, s, 4);
        assert_true(again >= found || again == 0);
        write_n(&b, 20, 3);
        assert_int_equal(read_n(&b, 20, 3), 6);
        close_it(&b);
    }
}

/* A process that is killed while it writes: the next one opens the file, and what is in it is right. */
static void a_kill_at_any_moment(void **state)
{
    (void)state;
    int found = 0;
    remove_all();
    for (uint64_t round = 0; round < 12; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            ek_store_backend b;
            if (ek_store_sqlite_open(&b, dir, "key", 3e6, &bed_layout)) _exit(1);
            for (uint64_t s = round * 100;; s++) write_n(&b, s, 4);
        }
        usleep((useconds_t)(5000 + ek_mix64(round) % 90000));
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status));
        ek_store_backend b = open_with("key", 3e6);
        for (uint64_t s = round * 100; s < round * 100 + 20; s++) found += read_n(&b, s, 4);
        assert_int_equal(atomic_load(&b.counts->damaged), 0);
        close_it(&b);
    }
    printf("12 kills, %d pages found\n", found);
    assert_true(found > 0);
}

/* --- the thread around it */

static void count_wakes(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void pages_go_out_and_come_back(void **state)
{
    (void)state;
    enum { N = 100 };
    remove_all();
    atomic_int wakes = 0;
    ek_store_backend b = open_with("key", 1e9);
    ek_store *s;
    assert_int_equal(ek_store_open(&s, &b, &bed_layout, 64 * N, count_wakes, &wakes), EK_OK);
    static int32_t tokens[64 * N];
    static uint8_t want[EK_KIND_COUNT][N + 2];
    for (int i = 0; i < N; i++) {
        ek_store_page page, *slot;
        bed_fill(&page, 1, i);
        memcpy(tokens + 64 * i, page.token, sizeof page.token);
        while (!(slot = ek_store_slot(s))) ek_store_wait(s, 1);
        for (int k = 0; k < EK_KIND_COUNT; k++) memcpy(slot->bytes[k], page.bytes[k], bed_layout.page_bytes[k]);
        for (int k = 0; k < EK_KIND_COUNT; k++) page.bytes[k] = slot->bytes[k];
        if (i == 70) page.has[EK_SLIDING] = false;
        *slot = page;
        ek_store_save(s);
        want[EK_FULL][i] = i != 30; /* one that memory still has */
        want[EK_SLIDING][i] = i >= 50;
    }
    ek_store_close(s); /* writes all */
    assert_true(wakes > 0);
    b = open_with("key", 1e9);
    assert_int_equal(ek_store_open(&s, &b, &bed_layout, 64 * N, count_wakes, &wakes), EK_OK);
    ek_prefix_key key = {.salt = 1, .token = tokens, .n = 64 * N};
    const uint8_t *w[EK_KIND_COUNT] = {want[0], want[1]};
    for (int round = 0; round < 4; round++) {
        ek_chain root = ek_chain_root(round == 3 ? 2 : 1);
        int at = 0;
        bool end = false;
        ek_store_load(s, &root, &key, 0, N, w);
        while (!end) {
            const ek_store_page *p = ek_store_loaded(s, &end);
            if (!p) {
                if (!end) ek_store_wait(s, 1);
                continue;
            }
            if (at == 30) at++;
            ek_store_page right;
            bed_fill(&right, 1, at);
            assert_int_equal(p->depth, at);
            assert_true(p->has[EK_FULL]);
            assert_int_equal(p->has[EK_SLIDING], at >= 50 && at != 70);
            for (int k = 0; k < EK_KIND_COUNT; k++)
                if (p->has[k]) assert_memory_equal(p->bytes[k], right.bytes[k], bed_layout.page_bytes[k]);
            ek_store_done(s);
            if (++at == 10 && round == 1) break; /* not wanted any more */
        }
        if (round == 1) ek_store_stop_load(s);
        assert_int_equal(at, round == 1 ? 10 : round == 3 ? 0 : N);
    }
    ek_store_close(s);
}

static ek_store_backend memory_of(double max_bytes, const ek_store_backend *below)
{
    ek_store_backend b;
    assert_int_equal(ek_store_memory_open(&b, &bed_layout, max_bytes, below), EK_OK);
    return b;
}

static void memory_keeps_the_latest_pages(void **state)
{
    (void)state;
    ek_store_backend b = memory_of(1e9, NULL);
    assert_true(b.fleeting);
    write_n(&b, 1, 5);
    write_n(&b, 3, 4);
    write_n(&b, 1, 5); /* twice is once */
    assert_int_equal(atomic_load(&b.host->written), 18);
    assert_int_equal(atomic_load(&b.counts->written), 0);
    assert_int_equal(read_n(&b, 1, 6), 10);
    assert_int_equal(read_n(&b, 3, 6), 8);
    assert_int_equal(read_n(&b, 2, 6), 0);
    ek_store_page page, *one = &page;
    bed_fill(&page, 1, 2);
    page.has[0] = page.has[1] = false; /* forgotten */
    b.write(b.arg, &one, 1);
    assert_int_equal(read_n(&b, 1, 6), 8);
    bed_fill(&page, 2, 0);
    page.token[63] ^= 1; /* a name that is not its tokens' */
    b.write(b.arg, &one, 1);
    assert_int_equal(read_n(&b, 2, 1), 0);
    close_it(&b);
    b = memory_of(600000, NULL); /* ten pages of both kinds */
    for (uint64_t seed = 0; seed < 30; seed++) {
        write_n(&b, seed, 3);
        assert_int_equal(read_n(&b, 0, 3), 6); /* used again and again */
        assert_true(atomic_load(&b.host->bytes) <= 600000);
    }
    assert_true(atomic_load(&b.host->evicted) > 100);
    assert_int_equal(read_n(&b, 29, 3), 6);
    assert_int_equal(read_n(&b, 2, 3), 0);
    close_it(&b);
    b = memory_of(20000, NULL); /* no room for a full page */
    write_n(&b, 1, 2);
    assert_int_equal(read_n(&b, 1, 2), 1);
    assert_true(atomic_load(&b.host->failed) > 0);
    close_it(&b);
    assert_int_equal(ek_store_memory_open(&b, &bed_layout, 1e15, NULL), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "MiB of memory are available"));
}

/* Pages of a disk below are kept here once they were read, and what is dropped here is still there. */
static void memory_before_a_disk(void **state)
{
    (void)state;
    remove_all();
    ek_store_backend below = open_with("key", 1e9), b = memory_of(250000, &below);
    assert_false(b.fleeting);
    write_n(&b, 1, 8);
    assert_true(atomic_load(&b.host->evicted) > 0);
    assert_int_equal(read_n(&b, 1, 8), 16);
    close_it(&b);
    below = open_with("key", 1e9), b = memory_of(1e9, &below);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(read_n(&b, 1, 8), 16);
        assert_int_equal(atomic_load(&b.counts->read), 16);
        assert_int_equal(atomic_load(&b.host->read), round ? 16 : 0);
    }
    close_it(&b);
}

static int set_up(void **state)
{
    (void)state;
    dir = temp_dir();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_dir(dir);
    return 0;
}

/* Prompts can be read from it: its owner's alone, also one that an earlier version left for everybody, whatever the
 * umask. So are the files beside it. */
static void the_file_is_its_owners_alone(void **state)
{
    (void)state;
    remove_all();
    mode_t was = umask(0);
    ek_store_backend b = open_with("key", 1e9);
    write_n(&b, 1, 3);
    find_path();
    static const char *const tail[] = {"", "-wal"};
    for (size_t i = 0; i < 2; i++) {
        char beside[600];
        struct stat st;
        snprintf(beside, sizeof beside, "%s%s", path, tail[i]);
        assert_int_equal(stat(beside, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
    }
    close_it(&b);
    assert_int_equal(chmod(path, 0644), 0);
    b = open_with("key", 1e9);
    umask(was);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(read_n(&b, 1, 3), 6);
    close_it(&b);
}

/* A link where the file would be, or beside it: nothing is written where it leads. */
static void links_are_not_followed(void **state)
{
    (void)state;
    static const char *const tail[] = {"", "-wal", "-journal"};
    ek_store_backend b;
    char target[600], link[600];
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++) {
        remove_all();
        b = open_with("key", 1e9);
        find_path();
        close_it(&b);
        snprintf(link, sizeof link, "%s%s", path, tail[i]);
        snprintf(target, sizeof target, "%s/other", dir);
        unlink(link);
        assert_int_equal(symlink(target, link), 0);
        assert_int_equal(ek_store_sqlite_open(&b, dir, "key", 1e9, &bed_layout), EK_EIO);
        if (!strstr(ek_err_text(), "is a link")) fail_msg("%s: %s", tail[i], ek_err_text());
        assert_int_not_equal(access(target, F_OK), 0);
    }
    remove_all();
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(ek_store_sqlite_open(&b, dir, "key", 1e9, &bed_layout), EK_EIO);
    assert_int_equal(rmdir(path), 0);
}

static void sql(const char *text)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* The bytes of path; free them. */
static char *bytes_of_file(size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *n = (size_t)size_of(path);
    char *data = malloc(*n + 1);
    assert_int_equal(fread(data, 1, *n, f), *n);
    fclose(f);
    return data;
}

/* Another program's database under the name of the store's: not a byte of it changes. Tables of the store's own names
 * are no better. */
static void other_programs_databases_are_left_alone(void **state)
{
    (void)state;
    static const char *const other[] = {
        "CREATE TABLE notes(id INTEGER PRIMARY KEY, text TEXT); INSERT INTO notes(text) VALUES('mine');",
        "CREATE TABLE meta(name TEXT, value TEXT); INSERT INTO meta VALUES('a', 'b');",
        "CREATE TABLE meta(key TEXT NOT NULL); CREATE TABLE notes(text TEXT);",
        "CREATE TABLE page(id INTEGER PRIMARY KEY); CREATE TABLE data(x);",
        "PRAGMA application_id=77; VACUUM;",
        "CREATE VIEW v AS SELECT 1;",
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        ek_store_backend b;
        remove_all();
        b = open_with("key", 1e9);
        find_path();
        close_it(&b);
        remove_all();
        sql(other[i]);
        size_t n, m;
        char *before = bytes_of_file(&n);
        assert_int_equal(ek_store_sqlite_open(&b, dir, "key", 1e9, &bed_layout), EK_EFORMAT);
        if (!strstr(ek_err_text(), "the database of another program")) fail_msg("%s: %s", other[i], ek_err_text());
        char *after = bytes_of_file(&m);
        assert_int_equal(n, m);
        assert_memory_equal(before, after, n);
        free(before), free(after);
    }
    remove_all();
}

/* One that evenkeel made before it wrote its mark, and an empty file: taken. */
static void a_file_without_the_mark_is_taken(void **state)
{
    (void)state;
    remove_all();
    ek_store_backend b = open_with("key", 1e9);
    write_n(&b, 1, 4);
    close_it(&b);
    find_path();
    sql("PRAGMA application_id=0;");
    b = open_with("key", 1e9);
    assert_int_equal(read_n(&b, 1, 4), 8);
    close_it(&b);
    assert_int_equal(truncate(path, 0), 0);
    b = open_with("key", 1e9);
    assert_int_equal(read_n(&b, 1, 4), 0);
    close_it(&b);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_is_its_owners_alone),
        cmocka_unit_test(links_are_not_followed),
        cmocka_unit_test(other_programs_databases_are_left_alone),
        cmocka_unit_test(a_file_without_the_mark_is_taken),
        cmocka_unit_test(pages_survive_a_restart),
        cmocka_unit_test(pages_of_another_version_are_ignored),
        cmocka_unit_test(a_record_under_a_wrong_name_is_not_read),
        cmocka_unit_test(the_oldest_go_at_the_limit),
        cmocka_unit_test(two_processes_do_not_share_a_file),
        cmocka_unit_test(damage_never_reaches_a_reader),
        cmocka_unit_test(a_full_disk_loses_pages_and_nothing_else),
        cmocka_unit_test(memory_keeps_the_latest_pages),
        cmocka_unit_test(memory_before_a_disk),
        cmocka_unit_test(a_kill_at_any_moment),
        cmocka_unit_test(pages_go_out_and_come_back),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
