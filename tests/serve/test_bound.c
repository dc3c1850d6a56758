/* An address that is bound before a server is there: nobody else gets it, and nobody is answered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/http/http.h"

/* A socket that is connected, or -1 with errno. */
static int connect_to(int port)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static void a_bound_port_is_taken_and_silent(void **state)
{
    (void)state;
    ek_bound one, two;
    assert_int_equal(ek_bound_open(&one, "127.0.0.1", 0), EK_OK);
    assert_true(one.port > 0 && one.loopback);
    assert_int_equal(ek_bound_open(&two, "127.0.0.1", one.port), EK_EIO);
    assert_non_null(strstr(ek_err_text(), "cannot listen on 127.0.0.1 port"));
    assert_non_null(strstr(ek_err_text(), "Address already in use"));
    assert_int_equal(connect_to(one.port), -1);
    assert_int_equal(errno, ECONNREFUSED);
    ek_bound_close(&one);
    ek_bound_close(&one); /* closed is closed */
    assert_int_equal(ek_bound_open(&two, "127.0.0.1", 0), EK_OK);
    ek_bound_close(&two);
    assert_int_equal(ek_bound_open(&two, "no.such.host.invalid", 1), EK_EIO);
    assert_int_equal(ek_bound_open(&two, "0.0.0.0", 0), EK_OK);
    assert_false(two.loopback);
    ek_bound_close(&two);
}

/* A port that another program listens on, however that one bound it. */
static void a_port_that_is_served_is_taken(void **state)
{
    (void)state;
    for (int reuse = 0; reuse < 2; reuse++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t n = sizeof a;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        ek_bound b;
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse), 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(listen(fd, 1), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
        assert_int_equal(ek_bound_open(&b, "127.0.0.1", ntohs(a.sin_port)), EK_EIO);
        close(fd);
    }
}

static void handle(void *arg, ek_exchange *x)
{
    (void)arg, (void)x;
}

static void say(void *arg, ek_buf *out, const char *path, int status, const char *text)
{
    (void)arg, (void)out, (void)path, (void)status, (void)text;
}

/* The server takes it over; a restart finds the port free although old connections are remembered. */
static void a_server_listens_on_it(void **state)
{
    (void)state;
    struct event_base *base = event_base_new();
    int port = 0;
    for (int turn = 0; turn < 2; turn++) {
        ek_bound b;
        ek_http *http;
        if (ek_bound_open(&b, "127.0.0.1", port)) fail_msg("%s", ek_err_text());
        port = b.port;
        ek_http_opts o = {.host = "127.0.0.1",
                          .bound = &b,
                          .max_connections = 4,
                          .max_body = 1000,
                          .max_unsent = 1000,
                          .body_timeout = 1,
                          .idle_timeout = 1};
        assert_int_equal(ek_http_open(&http, base, &o, handle, say, NULL), EK_OK);
        assert_int_equal(ek_http_port(http), port);
        assert_true(ek_http_is_loopback(http));
        int fd = connect_to(port);
        assert_true(fd >= 0);
        event_base_loop(base, EVLOOP_NONBLOCK);
        ek_http_close(http); /* our side closes first, and is remembered */
        close(fd);
        assert_int_equal(connect_to(port), -1);
    }
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bound_port_is_taken_and_silent),
        cmocka_unit_test(a_port_that_is_served_is_taken),
        cmocka_unit_test(a_server_listens_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
