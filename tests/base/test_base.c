/* Errors, buffers, hashes, random numbers, the thread pool, CPU features and files. */
/* runs: quiet */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash/hash.h"
#include "base/hash/rng.h"
#include "base/machine/cpu.h"
#include "base/machine/pool.h"

static void err_keeps_the_sentence(void **state)
{
    (void)state;
    assert_int_equal(ek_fail(EK_EPARSE, "byte %d of %s", 7, "x"), EK_EPARSE);
    assert_string_equal(ek_err_text(), "byte 7 of x");
    ek_fail_in(EK_EPARSE, "file %s", "f");
    assert_string_equal(ek_err_text(), "file f: byte 7 of x");
    assert_int_equal(ek_err_http(EK_EBUSY), 429);
    char longer[5000];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    ek_fail_in(ek_fail(EK_EIO, "no \x1b[1m%s", "a\nb"), "%s", "f\r\x7f");
    assert_string_equal(ek_err_text(), "f\\x0d\\x7f: no \\x1b[1ma\\x0ab");
    ek_fail(EK_EIO, "%s", longer);
    ek_fail_in(EK_EIO, "%s", longer);
    assert_true(strlen(ek_err_text()) < 1024);
}

/* Vectors of FIPS 180 and of git (an empty blob); then every way to cut a message gives the same. */
static void hashes_in_parts(void **state)
{
    (void)state;
    char a[65], b[65];
    uint8_t data[300];
    ek_sha1_state one;
    ek_sha256_state two;
    ek_sha1_init(&one);
    ek_sha1_add(&one, "abc", 3);
    ek_sha1_end(&one, a);
    assert_string_equal(a, "a9993e364706816aba3e25717850c26c9cd0d89d");
    ek_sha1_init(&one);
    ek_sha1_add(&one, "blob 0", 7);
    ek_sha1_end(&one, a);
    assert_string_equal(a, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    ek_sha1_init(&one);
    for (int i = 0; i < 1000000; i++) ek_sha1_add(&one, "a", 1);
    ek_sha1_end(&one, a);
    assert_string_equal(a, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    ek_sha256_init(&two);
    for (int i = 0; i < 1000000; i++) ek_sha256_add(&two, "a", 1);
    ek_sha256_end(&two, a);
    assert_string_equal(a, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7);
    for (size_t n = 0; n <= sizeof data; n += 13)
        for (size_t cut = 0; cut <= n; cut++) {
            ek_sha256_hex(a, data, n);
            ek_sha256_init(&two);
            ek_sha256_add(&two, data, cut);
            ek_sha256_add(&two, data + cut, n - cut);
            ek_sha256_end(&two, b);
            assert_string_equal(a, b);
        }
}

static void the_sha_instructions_give_the_same(void **state)
{
    (void)state;
    uint8_t data[64 * 9];
    if (!ek_sha256_has_x86()) skip();
    for (uint64_t seed = 0; seed < 50; seed++)
        for (size_t n = 0; n <= 9; n++) {
            uint32_t one[8], two[8];
            for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)ek_mix64(seed * 1000 + i);
            for (size_t i = 0; i < 8; i++) one[i] = two[i] = (uint32_t)ek_mix64(seed + 77 * i);
            ek_sha256_blocks(one, data, n);
            ek_sha256_blocks_x86(two, data, n);
            assert_memory_equal(one, two, sizeof one);
        }
}

static void two_messages_have_their_own_hashes(void **state)
{
    (void)state;
    uint8_t a[700], b[700], one[2][32], two[2][32];
    for (size_t i = 0; i < sizeof a; i++) a[i] = (uint8_t)ek_mix64(i), b[i] = (uint8_t)ek_mix64(i + 7777);
    for (size_t n = 0; n <= sizeof a; n++) {
        ek_sha256(one[0], a, n);
        ek_sha256(one[1], b, n);
        ek_sha256_two(two[0], two[1], a, b, n);
        assert_memory_equal(one, two, sizeof one);
    }
}

static void buf_grows(void **state)
{
    (void)state;
    ek_buf b = {0};
    assert_string_equal(ek_buf_text(&b), "");
    for (int i = 0; i < 1000; i++) ek_buf_fmt(&b, "%d,", i);
    assert_int_equal(b.len, 3890);
    assert_string_equal(b.data + b.len - 4, "999,");
    ek_buf_clear(&b);
    ek_buf_add(&b, "a\0b", 3);
    assert_memory_equal(b.data, "a\0b", 4);
    ek_buf_fini(&b);
}

static void philox_known_answers(void **state)
{
    (void)state;
    /* The published known-answer vectors of Philox4x32-10. */
    static const uint32_t kat[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
         0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        ek_philox(out, kat[i], kat[i] + 4);
        assert_memory_equal(out, kat[i] + 6, sizeof out);
    }
}

/* Every byte is written, and another time otherwise. */
static void the_system_has_random_bytes(void **state)
{
    uint8_t sum[37] = {0}, bytes[2][37] = {{0}};
    (void)state;
    for (int i = 0; i < 16; i++) {
        assert_true(ek_random(bytes[i % 2], sizeof bytes[0]));
        for (size_t k = 0; k < sizeof sum; k++) sum[k] |= bytes[i % 2][k];
        assert_memory_not_equal(bytes[0], bytes[1], sizeof bytes[0]);
    }
    for (size_t k = 0; k < sizeof sum; k++) assert_int_not_equal(sum[k], 0);
}

static void hashes_are_fixed(void **state)
{
    (void)state;
    assert_true(ek_fnv1a64("") == 0xCBF29CE484222325u);
    assert_true(ek_fnv1a64("a") == 0xAF63DC4C8601EC8Cu);
    assert_true(ek_mix64(0) == 0xE220A8397B1DCDAFu); /* first output of SplitMix64 seeded with 0 */
    assert_true(ek_hash64(1, "abcdefgh", 8) != ek_hash64(1, "abcdefgi", 8));
    assert_true(ek_hash64(1, "a", 1) != ek_hash64(1, "a\0", 2));
}

struct sum {
    atomic_int calls[10000];
    int threads;
};

static void add_one(void *arg, int task, int worker)
{
    struct sum *s = arg;
    EK_ASSERT(worker >= 0 && worker < s->threads);
    atomic_fetch_add(&s->calls[task], 1);
}

static void pool_runs_each_task_once(void **state)
{
    (void)state;
    static struct sum s;
    for (int threads = 1; threads <= 4; threads++) {
        ek_pool *p;
        assert_int_equal(ek_pool_open(&p, threads), EK_OK);
        s.threads = threads;
        for (int round = 0; round < 200; round++) {
            int n = round < 190 ? round : 10000;
            memset(&s.calls, 0, sizeof s.calls);
            ek_pool_run(p, add_one, &s, n);
            for (int i = 0; i < 10000; i++) assert_int_equal(atomic_load(&s.calls[i]), i < n);
        }
        ek_pool_close(p);
    }
    ek_pool *none = NULL;
    assert_int_equal(ek_pool_open(&none, 0), EK_EINVAL);
}

static void pool_wakes_sleepers(void **state)
{
    (void)state;
    static struct sum s;
    ek_pool *p;
    assert_int_equal(ek_pool_open(&p, 3), EK_OK);
    s.threads = 3;
    for (int round = 0; round < 5; round++) {
        usleep(20000); /* long enough for the workers to give up spinning */
        memset(&s.calls, 0, sizeof s.calls);
        ek_pool_run(p, add_one, &s, 100);
        for (int i = 0; i < 100; i++) assert_int_equal(atomic_load(&s.calls[i]), 1);
    }
    ek_pool_close(p);
}

/* Workers that wait take no processor time: they spin for well under a millisecond, then they sleep. */
static void pool_is_idle(void **state)
{
    (void)state;
    static struct sum s = {.threads = 4};
    struct timespec from, to;
    ek_pool *p;
    assert_int_equal(ek_pool_open(&p, 4), EK_OK);
    ek_pool_run(p, add_one, &s, 100);
    usleep(50000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    usleep(300000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    double used = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    if (used > 0.01) fail_msg("4 idle threads used %.1f ms in 300", used * 1e3);
    ek_pool_close(p);
}

static void cpu_names_and_masks_agree(void **state)
{
    (void)state;
    assert_string_equal(ek_cpu_isas()[0], "scalar");
    for (int i = 0; ek_cpu_isas()[i]; i++) {
        unsigned mask = 99;
        assert_int_equal(ek_cpu_mask(ek_cpu_isas()[i], &mask), EK_OK);
        assert_string_equal(ek_cpu_isa(mask), ek_cpu_isas()[i]);
        assert_int_equal(mask & ~ek_cpu_detect(), 0);
    }
    unsigned mask;
    assert_int_equal(ek_cpu_mask("sse9", &mask), EK_EINVAL);
    assert_int_equal(ek_cpu_float_check(), EK_OK);
}

static void files_say_what_is_wrong(void **state)
{
    (void)state;
    char path[] = "/tmp/evenkeel-base-......";
    memset(path + sizeof path - 7, 'X', 6); /* mkstemp's place for a name */
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "hello", 5), 5);
    close(fd);
    ek_map m;
    assert_int_equal(ek_map_open(&m, path), EK_OK);
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.data, "hello", 5);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    ek_map_drop_pages(&m);
    assert_memory_equal(m.data, "hello", 5);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_minflt > before.ru_minflt); /* the page had left the process */
    ek_map_close(&m);
    ek_buf b = {0};
    assert_int_equal(ek_file_read(&b, path, 4), EK_ETOOLARGE);
    ek_buf_clear(&b);
    assert_int_equal(ek_file_read(&b, path, 5), EK_OK);
    assert_string_equal(b.data, "hello");
    ek_buf_fini(&b);
    unlink(path);
    assert_int_equal(ek_map_open(&m, path), EK_ENOTFOUND);
    assert_non_null(strstr(ek_err_text(), path));
    assert_int_equal(ek_map_open(&m, "/tmp"), EK_EIO);
    assert_string_equal(ek_err_text(), "/tmp: is a folder, not a file");
    assert_int_equal(ek_file_read(&b, "/dev/null", 5), EK_EIO);
    assert_string_equal(ek_err_text(), "/dev/null: is a device, not a file");
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(10); /* a pipe without a writer must not be waited for */
    assert_int_equal(ek_map_open(&m, path), EK_EIO);
    assert_int_equal(ek_file_read(&b, path, 5), EK_EIO);
    alarm(0);
    assert_non_null(strstr(ek_err_text(), ": is a pipe, not a file"));
    unlink(path);
    assert_int_equal(symlink(path, path), 0);
    assert_int_equal(ek_file_read(&b, path, 5), EK_EIO);
    unlink(path);
}

static void all_bytes_are_written_or_it_is_said(void **state)
{
    (void)state;
    int fd[2];
    ek_buf b = {0};
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(ek_fd_write(fd[1], "keel", 4), EK_OK);
    assert_int_equal(ek_fd_write(fd[1], NULL, 0), EK_OK);
    close(fd[1]);
    assert_int_equal(ek_fd_read(&b, fd[0], 9), EK_OK);
    assert_string_equal(b.data, "keel");
    ek_buf_fini(&b);
    assert_int_equal(ek_fd_write(fd[0], "keel", 4), EK_EIO); /* it is to be read */
    assert_int_equal(errno, EBADF);
    assert_non_null(strstr(ek_err_text(), strerror(EBADF)));
    close(fd[0]);
    const int full = open("/dev/full", O_WRONLY);
    if (full < 0) return;
    assert_int_equal(ek_fd_write(full, "keel", 4), EK_EIO);
    assert_int_equal(errno, ENOSPC);
    close(full);
}

/* Another's link under the temporary name leads nowhere, and what cannot be written leaves what was there. */
static void a_file_is_replaced_whole(void **state)
{
    (void)state;
    char dir[] = "/tmp/evenkeel-base-......", path[64], part[96], other[64];
    memset(dir + sizeof dir - 7, 'X', 6);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/file", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    snprintf(part, sizeof part, "%s.%d.part", path, (int)getpid());
    ek_buf b = {0};
    assert_int_equal(ek_file_replace(path, "one", 3, 0600), EK_OK);
    assert_int_equal(ek_file_replace(other, "theirs", 6, 0600), EK_OK);
    assert_int_equal(symlink(other, part), 0);
    assert_int_equal(ek_file_replace(path, "two!", 4, 0600), EK_OK);
    assert_int_equal(ek_file_read(&b, path, 9), EK_OK);
    assert_int_equal(ek_file_read(&b, other, 9), EK_OK);
    assert_string_equal(b.data, "two!theirs");
    ek_buf_fini(&b);
    assert_int_not_equal(access(part, F_OK), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(ek_file_replace(dir, "no", 2, 0600), EK_EIO); /* a folder is there */
    assert_non_null(strstr(ek_err_text(), dir));
    assert_int_equal(unlink(other), 0);
    assert_int_equal(mkfifo(other, 0600), 0);
    ek_new_file new;
    assert_int_equal(ek_file_replace(other, "no", 2, 0600), EK_EIO); /* so would /dev/null be lost */
    assert_int_equal(ek_new_file_open(&new, other, 0600), EK_EIO);
    assert_non_null(strstr(ek_err_text(), "is a pipe, not a file"));
    assert_int_equal(stat(other, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(unlink(path) | unlink(other) | rmdir(dir), 0);
    assert_int_equal(ek_file_replace(path, "no", 2, 0600), EK_EIO);
    assert_non_null(strstr(ek_err_text(), "No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err_keeps_the_sentence),
        cmocka_unit_test(hashes_in_parts),
        cmocka_unit_test(the_sha_instructions_give_the_same),
        cmocka_unit_test(two_messages_have_their_own_hashes),
        cmocka_unit_test(buf_grows),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(the_system_has_random_bytes),
        cmocka_unit_test(hashes_are_fixed),
        cmocka_unit_test(pool_runs_each_task_once),
        cmocka_unit_test(pool_wakes_sleepers),
        cmocka_unit_test(pool_is_idle),
        cmocka_unit_test(cpu_names_and_masks_agree),
        cmocka_unit_test(files_say_what_is_wrong),
        cmocka_unit_test(all_bytes_are_written_or_it_is_said),
        cmocka_unit_test(a_file_is_replaced_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
