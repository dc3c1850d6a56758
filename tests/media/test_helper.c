/* What decodes a stranger's file costs that file alone: it lies, it takes for ever, it crashes, nobody waits for it, it
 * chatters; and what a damaged one leaves unwritten is the same each time. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash/hash.h"
#include "base/clock.h"
#include "draw.h"
#include "media/limits.h"
#include "media/locked/helper.h"
#include "media/locked/helper_parts.h"
#include "media/locked/lock.h"
#include "media/picture.h"

static void nap(int ms)
{
    usleep((useconds_t)ms * 1000);
}

/* Many scans of a picture that says it is larger than they are: seconds for a decoder, and few bytes. */
static void put_slow(ek_buf *out)
{
    uint8_t px[80 * 80 * 3];
    ek_buf b = {0};
    for (size_t i = 0; i < sizeof px; i++) px[i] = (uint8_t)(i * i >> 5);
    put_jpeg(&b, px, 80, 80, 3, 0, false, true);
    size_t last = b.len - 2, size = 0;
    while (memcmp(b.data + size, "\xFF\xC2", 2)) size++;
    memcpy(b.data + size + 5, "\x1F\x40\x1F\x40", 4); /* 8,000 x 8,000 */
    while (memcmp(b.data + last, "\xFF\xDA", 2)) last--;
    ek_buf_add(out, b.data, b.len - 2);
    for (int i = 0; i < 50; i++) ek_buf_add(out, b.data + last, b.len - 2 - last);
    ek_buf_add(out, "\xFF\xD9", 2);
    ek_buf_fini(&b);
}

static void assert_good_goes_on(void)
{
    ek_image image = draw(40, 30);
    ek_buf b = {0};
    put_png(&b, image.rgb, 40, 30, 2, 8, false, 0);
    assert_pixels(&b, &image);
    ek_buf_fini(&b);
    ek_image_free(&image);
}

static void a_slow_picture_has_its_time(void **state)
{
    (void)state;
    ek_buf b = {0};
    ek_image image;
    put_slow(&b);
    const uint64_t before = ek_helper_spent();
    ek_helper_allow(200000); /* of a request whose other pictures took the rest */
    assert_int_equal(ek_image_decode(&image, b.data, b.len, EK_ALPHA_DROP), EK_ETOOLARGE);
    assert_non_null(strstr(ek_err_text(), "the request takes more than 10 s of processor time"));
    assert_int_equal(ek_image_decode(&image, b.data, b.len, EK_ALPHA_DROP), EK_ETOOLARGE); /* at once */
    const uint64_t took = ek_helper_spent() - before;
    assert_true(took >= 150000 && took < 400000);
    ek_helper_allow(0);
    assert_good_goes_on();
    ek_buf_fini(&b);
}

/* Headers that need no library cost no process; what is wrong with one is the helper's to say. */
static void a_plain_header_is_read_here(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        ek_image image = draw(40, 30);
        ek_buf b = {0};
        ek_image_info info;
        ek_helper_stats before, after;
        if (kind) put_png(&b, image.rgb, 40, 30, 2, 8, false, 0);
        else put_jpeg(&b, image.rgb, 40, 30, 3, 6, false, false);
        ek_helper_stats_get(&before);
        assert_int_equal(ek_image_probe(&info, b.data, b.len), EK_OK);
        ek_helper_stats_get(&after);
        assert_int_equal(after.files, before.files);
        ek_ask ask = {.what = EK_ASK_IMAGE_PROBE};
        ek_decoded a;
        assert_int_equal(ek_helper_decode(&a, NULL, &ask, b.data, b.len), EK_OK);
        assert_string_equal(info.format, a.format);
        assert_int_equal(info.width, a.width);
        assert_int_equal(info.height, a.height);
        assert_int_equal(info.orientation, a.orientation);
        assert_int_equal(info.animated, a.animated);
        assert_int_equal(info.memory, a.memory);
        assert_int_equal(info.held, a.held);
        assert_int_equal(ek_image_probe(&info, b.data, 22), EK_EPARSE);
        assert_non_null(strstr(ek_err_text(), kind ? "damaged PNG picture" : "damaged JPEG picture"));
        ek_helper_stats_get(&after);
        assert_int_equal(after.files, before.files + 2);
        ek_buf_fini(&b);
        ek_image_free(&image);
    }
}

/* --- somebody else, meanwhile --- */

static pid_t child_of(pid_t parent)
{
    DIR *d = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], name[64];
        int pid, ppid;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        FILE *f = atoi(e->d_name) > 0 ? fopen(path, "r") : NULL;
        if (f && fscanf(f, "%d (%63[^)]) %*c %d", &pid, name, &ppid) == 3 && ppid == parent &&
            !strncmp(name, "evenkeel-dec", 12))
            found = pid;
        if (f) fclose(f);
    }
    if (d) closedir(d);
    return found;
}

/* The state letter of a process; 'X': it is gone. */
static char state_of(pid_t pid)
{
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = pid > 0 ? fopen(path, "r") : NULL;
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'X';
    if (f) fclose(f);
    return state;
}

static void end(pid_t pid)
{
    if (pid > 0) kill(pid, SIGKILL);
}

/* Ends the helper, and returns when the next file finds it dead. Its process for that file shares its descriptors until
 * it waits for work, which takes a while on a busy machine. */
static void end_helper(void)
{
    const pid_t helper = child_of(getpid());
    for (int i = 0; i < 2000 && state_of(child_of(helper)) != 'S'; i++) nap(5);
    end(helper);
    for (int i = 0; i < 2000 && state_of(helper) != 'Z' && state_of(helper) != 'X'; i++) nap(5);
}

typedef struct meanwhile {
    enum { DROP, KILL_HELPER, KILL_DECODER } what;
    atomic_bool dropped;
} meanwhile;

/* Hundredths of a second that a process has computed. */
static long ticks_of(pid_t pid)
{
    char path[64];
    long ticks = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = pid > 0 ? fopen(path, "r") : NULL;
    if (f && fscanf(f, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld", &ticks) != 1) ticks = 0;
    if (f) fclose(f);
    return ticks;
}

static void *do_it(void *arg)
{
    meanwhile *m = arg;
    pid_t helper = 0;
    for (int i = 0; i < 1000 && ticks_of(child_of(helper)) < 5; i++) { /* until the decoder is at work */
        nap(5);
        helper = child_of(getpid());
    }
    if (m->what == DROP) atomic_store(&m->dropped, true);
    if (m->what == KILL_HELPER) end(helper);
    if (m->what == KILL_DECODER && helper > 0) end(child_of(helper));
    return NULL;
}

static void decode_while(meanwhile *m, const ek_buf *b, ek_err *err)
{
    pthread_t t;
    ek_image image;
    pthread_create(&t, NULL, do_it, m);
    ek_wanted_until(&m->dropped);
    *err = ek_image_decode(&image, b->data, b->len, EK_ALPHA_DROP);
    ek_wanted_until(NULL);
    pthread_join(t, NULL);
}

static void it_ends_with_who_wants_it(void **state)
{
    (void)state;
    ek_buf b = {0};
    ek_err err;
    put_slow(&b);
    meanwhile m = {.what = DROP};
    const uint64_t before = ek_helper_spent();
    decode_while(&m, &b, &err);
    assert_int_equal(err, EK_ECANCELLED);
    assert_true(ek_helper_spent() - before < 1000000); /* of two seconds that it might have taken */
    const pid_t helper = child_of(getpid());
    assert_true(helper > 0); /* it stays, what decoded is gone: a fresh one waits */
    assert_good_goes_on();
    assert_int_equal(child_of(getpid()), helper);
    ek_buf_fini(&b);
}

static void a_killed_one_costs_one_file(void **state)
{
    (void)state;
    ek_buf b = {0};
    ek_err err;
    put_slow(&b);
    meanwhile m = {.what = KILL_HELPER};
    decode_while(&m, &b, &err);
    assert_int_equal(err, EK_EIO);
    assert_non_null(strstr(ek_err_text(), "was killed"));
    assert_good_goes_on();
    m = (meanwhile){.what = KILL_DECODER};
    decode_while(&m, &b, &err);
    assert_int_equal(err, EK_EIO);
    assert_good_goes_on();
    /* One that waits for work, too. */
    end_helper();
    assert_good_goes_on();
    end(child_of(child_of(getpid())));
    nap(50);
    assert_good_goes_on();
    ek_buf_fini(&b);
}

/* --- files that lie, and damaged ones --- */

/* The box that says how large the picture is. */
static uint8_t *size_box(const ek_buf *b)
{
    for (size_t i = 0; i + 16 <= b->len; i++)
        if (!memcmp(b->data + i, "ispe", 4)) return (uint8_t *)b->data + i + 8;
    fail_msg("no ispe box");
    return NULL;
}

static void a_header_that_lies_is_refused(void **state)
{
    (void)state;
    int made = 0;
    for (int avif = 0; avif < 2; avif++) {
        ek_image image = draw(800, 600), got;
        ek_buf b = {0};
        ek_image_info info;
        if (put_heif(&b, &image, NULL, avif)) {
            made++;
            uint8_t *size = size_box(&b);
            memcpy(size, "\0\0\0\x40\0\0\0\x40", 8);
            assert_int_equal(ek_image_probe(&info, b.data, b.len), EK_OK);
            assert_int_equal(info.width, 64);
            assert_int_equal(ek_image_decode(&got, b.data, b.len, EK_ALPHA_DROP), EK_EPARSE);
        }
        ek_buf_fini(&b);
        ek_image_free(&image);
    }
    if (!made) skip();
}

static void a_damaged_one_is_equal_each_time(void **state)
{
    (void)state;
    int made = 0;
    for (int avif = 0; avif < 2; avif++) {
        ek_image image = draw(228, 74);
        ek_buf b = {0};
        if (put_heif(&b, &image, NULL, avif)) made++;
        for (size_t at = b.len / 2; b.len > 0 && at < b.len; at += 1 + b.len / 9) {
            b.data[at] ^= 0x55;
            uint32_t first = 0;
            for (int i = 0; i < 6; i++) {
                ek_image got;
                ek_err err = ek_image_decode(&got, b.data, b.len, EK_ALPHA_DROP);
                const uint32_t crc = err ? (uint32_t)err : ek_crc32(0, got.rgb, ek_image_bytes(&got));
                if (i == 0) first = crc;
                assert_int_equal(crc, first);
                ek_image_free(&got);
                if (i == 2) end_helper(); /* another helper, at other addresses */
            }
        }
        ek_buf_fini(&b);
        ek_image_free(&image);
    }
    if (!made) skip();
}

/* --- what it writes, and what it can reach --- */

/* What a process finds on its desk is its own file, and nothing of those before. */
static void a_desk_that_stays_is_zeros(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 5000, 700000, 3 << 20, 20 << 20, 40000};
    uint8_t *file = ek_alloc(20 << 20);
    memset(file, 0xA5, 20 << 20);
    ek_shared_desk d = {.fd = -1};
    int stayed = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const ek_ask ask = {.n = sizes[i], .room = sizes[i] / 2, .memory = 77};
        assert_int_equal(ek_desk_lay(&d, &ask, file), EK_OK);
        assert_true(d.n >= ek_desk_bytes(&ask));
        const int fd = d.fd;
        for (size_t k = sizeof ask; k < (size_t)ek_desk_file(&ask); k++) assert_int_equal(d.p[k], 0);
        for (size_t k = ek_desk_bytes(&ask); k < d.n; k++) assert_int_equal(d.p[k], 0);
        assert_memory_equal(d.p, &ask, sizeof ask);
        assert_memory_equal(d.p + ek_desk_file(&ask), file, ask.n);
        memset(d.p, 0x5A, (ek_desk_bytes(&ask) + 4095) / 4096 * 4096); /* by a decoder that has been taken over */
        ek_desk_clear(&d, &ask);
        for (size_t k = 0; k < d.n; k++) assert_int_equal(d.p[k], 0);
        stayed += d.fd == fd;
        assert_true(d.n <= EK_DESK_KEPT);
    }
    assert_int_equal(stayed, 5);
    ek_desk_drop(&d);
    free(file);
}

static void many_words_keep_nobody_waiting(void **state)
{
    (void)state;
    const uint64_t before = ek_helper_lines();
    const int fd = ek_helper_says();
    assert_true(fd >= 0);
    for (int i = 0; i < 20000; i++) assert_true(dprintf(fd, "a decoder says line %d\n", i) > 20);
    for (int i = 0; i < 500 && ek_helper_lines() < before + 20000; i++) nap(10);
    assert_true(ek_helper_lines() >= before + 20000);
}

/* Bits of what a process that is locked as a decoder could do. */
static int tries(void)
{
    int could = 0;
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) could |= 1;
    if (open("/etc/passwd", O_RDONLY) >= 0) could |= 2;
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_UNIX, SOCK_STREAM, 0) >= 0) could |= 4;
    if (fork() >= 0) could |= 8;
    if (mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0) could |= 16;
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) could |= 32;
    if (kill(getppid(), 0) == 0) could |= 64;
    if (mremap(p, 4096, 8192, MREMAP_MAYMOVE) != MAP_FAILED) could |= 128; /* beyond its file, on a desk that stays */
    return could;
}

static void it_has_memory_alone(void **state)
{
    (void)state;
    int status;
    const pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        if (ek_lock_decoder(self, 0, 1000)) _exit(127);
        _exit(tries());
    }
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_picture_has_its_time),   cmocka_unit_test(a_plain_header_is_read_here),
        cmocka_unit_test(it_ends_with_who_wants_it),     cmocka_unit_test(a_killed_one_costs_one_file),
        cmocka_unit_test(a_header_that_lies_is_refused), cmocka_unit_test(a_damaged_one_is_equal_each_time),
        cmocka_unit_test(a_desk_that_stays_is_zeros),    cmocka_unit_test(many_words_keep_nobody_waiting),
        cmocka_unit_test(it_has_memory_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
