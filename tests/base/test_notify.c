/* Messages to a supervisor's socket, of this test's own. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/notify.h"

/* A socket of this name, as NOTIFY_SOCKET has it. */
static int listening(const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const size_t n = strlen(name);
    assert_true(n < sizeof at.sun_path);
    memcpy(at.sun_path, name, n);
    if (*name == '@') at.sun_path[0] = '\0';
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    const size_t size = offsetof(struct sockaddr_un, sun_path) + n + (*name == '/');
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, (socklen_t)size), 0);
    ek_notify_open(name, NULL, NULL);
    return fd;
}

static void test_a_message_arrives_whole(void **state)
{
    (void)state;
    char path[2][64], got[256];
    snprintf(path[0], sizeof path[0], "/tmp/evenkeel-notify-%d", (int)getpid());
    snprintf(path[1], sizeof path[1], "@evenkeel-notify-%d", (int)getpid());
    for (int i = 0; i < 2; i++) {
        const int fd = listening(path[i]);
        assert_true(ek_notify("READY=1\nSTATUS=serves\n"));
        assert_true(ek_notify("STOPPING=1\n"));
        assert_int_equal(recv(fd, got, sizeof got, 0), 22);
        assert_memory_equal(got, "READY=1\nSTATUS=serves\n", 22);
        assert_int_equal(recv(fd, got, sizeof got, 0), 11);
        assert_int_equal(recv(fd, got, sizeof got, 0), -1);
        close(fd);
        if (i == 0) unlink(path[0]);
        assert_false(ek_notify("READY=1\n")); /* gone */
    }
}

/* A supervisor that does not read costs its news, not the server's time. */
static void test_a_full_queue_is_reported(void **state)
{
    (void)state;
    char name[64], got[64];
    snprintf(name, sizeof name, "@evenkeel-full-%d", (int)getpid());
    const int fd = listening(name);
    int sent = 0;
    while (sent < 1000000 && ek_notify("STATUS=x\n")) sent++;
    assert_in_range(sent, 1, 999999);
    assert_true(recv(fd, got, sizeof got, 0) > 0);
    assert_true(ek_notify("STATUS=y\n"));
    close(fd);
}

static void test_nobody_asks(void **state)
{
    (void)state;
    char longer[200] = "/";
    memset(longer + 1, 'x', sizeof longer - 2);
    const char *const none[] = {"", "@", "/", "relative", "vsock:2:1", longer};
    ek_notify_open(NULL, "1000000", NULL);
    assert_true(ek_notify("READY=1\n"));
    assert_true(ek_notify_watchdog() == 0);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        ek_notify_open(none[i], NULL, NULL);
        assert_true(ek_notify("READY=1\n"));
    }
}

static void test_watchdog(void **state)
{
    (void)state;
    char own[32];
    snprintf(own, sizeof own, "%d", (int)getpid());
    const struct {
        const char *usec, *pid;
        double seconds;
    } rows[] = {{"60000000", NULL, 60},
                {"60000000", own, 60},
                {"60000000", "", 60},
                {"500000", own, 0.5},
                {"60000000", "1", 0},
                {NULL, own, 0},
                {"", NULL, 0},
                {"0", NULL, 0},
                {"-1", NULL, 0},
                {"6x", NULL, 0},
                {"99999999999999999999", NULL, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_notify_open("@x", rows[i].usec, rows[i].pid);
        assert_true(ek_notify_watchdog() == rows[i].seconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message_arrives_whole),
        cmocka_unit_test(test_a_full_queue_is_reported),
        cmocka_unit_test(test_nobody_asks),
        cmocka_unit_test(test_watchdog),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
