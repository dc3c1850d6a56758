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
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
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
    unsetenv("NOTIFY_SOCKET");
    assert_true(ek_notify("READY=1\n"));
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        setenv("NOTIFY_SOCKET", none[i], 1);
        assert_true(ek_notify("READY=1\n"));
    }
}

static void test_watchdog(void **state)
{
    (void)state;
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    unsetenv("WATCHDOG_PID");
    setenv("NOTIFY_SOCKET", "@x", 1);
    setenv("WATCHDOG_USEC", "60000000", 1);
    assert_true(ek_notify_watchdog() == 60.0);
    setenv("WATCHDOG_PID", pid, 1);
    assert_true(ek_notify_watchdog() == 60.0);
    setenv("WATCHDOG_PID", "1", 1);
    assert_true(ek_notify_watchdog() == 0);
    unsetenv("WATCHDOG_PID");
    const char *const wrong[] = {"", "0", "-1", "6x", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("WATCHDOG_USEC", wrong[i], 1);
        assert_true(ek_notify_watchdog() == 0);
    }
    setenv("WATCHDOG_USEC", "1000000", 1);
    unsetenv("NOTIFY_SOCKET");
    assert_true(ek_notify_watchdog() == 0);
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
