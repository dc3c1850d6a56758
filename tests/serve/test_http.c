/* Connections: limits, deadlines and clients that behave badly or unusually, over real sockets. The handler answers
 * by path: /echo the body, /wait the same after 0.2 s, /never nothing, /flood 8 MiB that nobody reads. */
/* runs: quiet */
#include "helper.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/http/http.h"

static struct event_base *base;
static ek_http *http;
static pthread_t thread;
static atomic_int n_gone, n_handled, n_busy, n_released, order; /* order: what the loop's thread shall do */

static void answer(evutil_socket_t fd, short what, void *arg)
{
    ek_exchange *x = arg;
    (void)fd, (void)what;
    ek_span b = ek_exchange_body(x);
    ek_exchange_reply(x, 200, "text/plain", b.p, b.n);
}

static void gone(void *user)
{
    (void)user;
    n_gone++;
}

static char lent[3 << 20];

static void released(void *arg)
{
    (void)arg;
    n_released++;
}

/* The head is out: a piece larger than the buffer, then, behind it or when it is read, the end. */
static void on_drained(void *user)
{
    ek_exchange *x = user;
    bool waits = !strcmp(ek_exchange_path(x), "/pieces");
    ek_outgoing piece = {.part[0] = {lent, sizeof lent}, .release = released};
    if (!waits || n_released == 0) ek_exchange_send_from(x, &piece);
    if (waits && n_released == 0) return;
    if (waits) ek_exchange_send(x, "tail", 4);
    if (waits) ek_exchange_end(x);
    else ek_exchange_end_with(x, "told", 4);
}

static bool lend(ek_exchange *x, const char *path)
{
    ek_outgoing all = {.part = {{lent, sizeof lent}, {"mid", 3}, {"end", 3}}, .release = released};
    if (!strcmp(path, "/lent")) ek_exchange_reply_from(x, 200, "text/plain", &all);
    if (strcmp(path, "/pieces") != 0 && strcmp(path, "/told") != 0) return !strcmp(path, "/lent");
    ek_exchange_on_drained(x, on_drained);
    ek_exchange_begin(x, 200, "text/plain");
    return true;
}

static void handle(void *arg, ek_exchange *x)
{
    static char block[1 << 16];
    const char *path = ek_exchange_path(x);
    (void)arg;
    n_handled++;
    ek_exchange_on_gone(x, gone, x);
    if (lend(x, path)) return;
    if (!strcmp(path, "/echo") || !strcmp(path, "/health")) {
        answer(-1, 0, x);
    } else if (!strcmp(path, "/wait")) {
        struct timeval later = {0, 200000};
        event_base_once(base, -1, EV_TIMEOUT, answer, x, &later);
    } else if (!strcmp(path, "/flood")) {
        ek_exchange_begin(x, 200, "text/plain");
        for (int i = 0; i < 128; i++) ek_exchange_send(x, block, sizeof block);
        ek_exchange_end(x);
    }
}

static bool is_health(void *arg, const ek_exchange *x)
{
    (void)arg;
    return !strcmp(ek_exchange_path(x), "/health");
}

static void write_error(void *arg, ek_buf *out, const char *path, int status, const char *text)
{
    (void)arg;
    ek_buf_fmt(out, "{\"path\":\"%s\",\"status\":%d,\"error\":\"%s\"}", path, status, text);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
    int o = atomic_exchange(&order, 0);
    n_busy = ek_http_busy(http);
    if (o == 1) ek_http_cut_slow_readers(http);
    if (o == 2) event_base_loopbreak(base);
}

static void *loop(void *arg)
{
    event_base_dispatch(base);
    return arg;
}

static struct event *tick;

static void open_http(ek_http_opts o)
{
    o.host = "127.0.0.1";
    if (!o.max_connections) o.max_connections = 50;
    if (!o.max_body) o.max_body = 1 << 20;
    if (!o.max_unsent) o.max_unsent = 16 << 20;
    if (o.body_timeout == 0) o.body_timeout = 5;
    if (o.idle_timeout == 0) o.idle_timeout = 5;
    n_gone = n_handled = n_released = order = 0;
    base = event_base_new();
    assert_int_equal(ek_http_open(&http, base, &o, handle, write_error, NULL), EK_OK);
    struct timeval every = {0, 20000};
    tick = event_new(base, -1, EV_PERSIST, on_tick, NULL);
    event_add(tick, &every);
    assert_int_equal(pthread_create(&thread, NULL, loop, NULL), 0);
}

static void close_http(void)
{
    order = 2;
    pthread_join(thread, NULL);
    ek_http_close(http);
    event_free(tick);
    event_base_free(base);
}

static int client(const char *text)
{
    int fd = connect_to(ek_http_port(http));
    struct timeval limit = {10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    send_all(fd, text, strlen(text));
    return fd;
}

static void check_reply(int fd, const char *begins, const char *ends)
{
    ek_buf r = reply_of(fd);
    size_t n = strlen(ends);
    if (strncmp(ek_buf_text(&r), begins, strlen(begins)) != 0 || r.len < n || strcmp(r.data + r.len - n, ends) != 0)
        fail_msg("not %s … %s: %.500s", begins, ends, ek_buf_text(&r));
    ek_buf_fini(&r);
}

static void wait_for(const atomic_int *n, int want)
{
    for (double begin = ek_now(); atomic_load(n) < want; usleep(5000))
        if (ek_now() - begin > 10) fail_msg("%d instead of %d after 10 s", atomic_load(n), want);
}

#define POST(path, n) "POST " path " HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: " #n "\r\n\r\n"

static void pieces_of_any_size(void **state)
{
    (void)state;
    open_http((ek_http_opts){0});
    static const char two[] =
        "\r\nPOST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabcPOST /wait HTTP/1.1\r\nhost: "
        "x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n";
    for (size_t cut = 1; cut < sizeof two - 1; cut += 23) {
        int fd = connect_to(ek_http_port(http));
        send_all(fd, two, cut);
        usleep(300);
        send_all(fd, two + cut, sizeof two - 1 - cut);
        ek_buf r = reply_of(fd);
        char *second = strstr(r.data, "\r\n\r\nabcHTTP/1.1 200 OK");
        assert_non_null(second);
        assert_string_equal(r.data + r.len - 7, "\r\n\r\ndef");
        ek_buf_fini(&r);
    }
    close_http();
}

static void ambiguous_heads(void **state)
{
    (void)state;
    open_http((ek_http_opts){0});
    check_reply(client("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\na"),
                "HTTP/1.1 400 ", "two content-lengths\"}");
    check_reply(client("GET /echo HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n"), "HTTP/1.1 400 ", "two hosts\"}");
    check_reply(client("GET /echo HTTP/1.1\r\nhost: x\r\na: b\nc: d\r\n\r\n"), "HTTP/1.1 400 ", "CR LF\"}");
    check_reply(client("POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n"), "HTTP/1.1 400 ",
                "announces\"}");
    check_reply(client(POST("/echo", 99999999)), "HTTP/1.1 413 ", "than the limit\"}");
    ek_buf large = {0};
    ek_buf_str(&large, "GET /echo HTTP/1.1\r\nhost: x\r\na: ");
    for (int i = 0; i < 5000; i++) ek_buf_str(&large, "0123456789");
    check_reply(client(large.data), "HTTP/1.1 431 ", "32 KiB\"}");
    ek_buf_fini(&large);
    assert_int_equal(n_handled, 0);
    close_http();
}

static void a_half_closed_client_gets_its_answer(void **state)
{
    (void)state;
    open_http((ek_http_opts){0});
    for (int i = 0; i < 3; i++) { /* with and without the interim response that asks whether it is there */
        int fd = client(i == 2 ? "POST /wait HTTP/1.0\r\ncontent-length: 2\r\n\r\nhi" : POST("/wait", 2) "hi");
        if (i == 1) usleep(100000);
        shutdown(fd, SHUT_WR);
        check_reply(fd, i == 2 ? "HTTP/1.1 200 " : "HTTP/1.1 ", "\r\n\r\nhi");
    }
    assert_int_equal(n_gone, 0);
    int fd = client(POST("/never", 2) "hi");
    wait_for(&n_handled, 4);
    close(fd);
    wait_for(&n_gone, 1);
    fd = client(POST("/never", 2) "hi"); /* and one that resets */
    wait_for(&n_handled, 5);
    struct linger reset = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    wait_for(&n_gone, 2);
    close_http();
}

static void half_sent_bodies(void **state)
{
    (void)state;
    open_http((ek_http_opts){.body_memory = 600 << 10});
    static char block[600 << 10];
    memset(block, 'x', sizeof block);
    int half[9], n;
    for (n = 0; n < 9; n++) { /* far more than the memory for bodies; each stops in the middle */
        half[n] = client("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 204800\r\n\r\n");
        send_all(half[n], block, 190 << 10);
    }
    usleep(50000);
    int small = client(POST("/echo", 40960)); /* always admitted, though 570 of 600 KiB are taken */
    send_all(small, block, 40 << 10);
    check_reply(small, "HTTP/1.1 200 ", "xxx");
    usleep(1200000); /* now they have stalled */
    int fd = client(POST("/echo", 307200));
    send_all(fd, block, 300 << 10);
    ek_buf r = reply_of(fd);
    assert_memory_equal(r.data, "HTTP/1.1 200 ", 13); /* in place of a stalled one */
    ek_buf_fini(&r);
    int reported = 0;
    for (int i = 0; i < n; i++) {
        struct pollfd p = {.fd = half[i], .events = POLLIN};
        if (poll(&p, 1, 0) == 1) {
            check_reply(half[i], "HTTP/1.1 503 ", "\"}");
            reported++;
        } else {
            close(half[i]);
        }
    }
    assert_true(reported >= 7); /* six did not fit, one made room */
    close_http();
}

/* Bodies that never stall, but bring a byte now and then, after most of them came at once. */
static void trickle(int *fd, int n, double seconds)
{
    for (double end = ek_now() + seconds; ek_now() < end; usleep(200000))
        for (int i = 0; i < n; i++)
            if (fd[i] >= 0 && send(fd[i], "x", 1, MSG_NOSIGNAL) < 0) close(fd[i]), fd[i] = -1;
}

static void start_bodies(int *fd, int n)
{
    static char block[190 << 10];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < n; i++) {
        fd[i] = client("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 204800\r\n\r\n");
        send_all(fd[i], block, sizeof block);
    }
}

static void bodies_that_trickle(void **state)
{
    (void)state;
    static char block[100 << 10];
    memset(block, 'y', sizeof block);
    open_http((ek_http_opts){.body_memory = 600 << 10, .rate_window = 0.8, .body_timeout = 60});
    int fd[3];
    start_bodies(fd, 3); /* 570 of 600 KiB */
    trickle(fd, 3, 1.5);
    for (int i = 0; i < 8; i++) { /* each has its room at once */
        int quick = client(POST("/echo", 102400));
        send_all(quick, block, sizeof block);
        check_reply(quick, "HTTP/1.1 200 ", "yyy");
        trickle(fd, 3, 0.1);
    }
    int left = 0;
    for (int i = 0; i < 3; i++) {
        struct pollfd p = {.fd = fd[i], .events = POLLIN};
        left += fd[i] >= 0 && poll(&p, 1, 0) == 0;
        if (fd[i] >= 0) close(fd[i]);
    }
    assert_int_equal(left, 2); /* one made room for all of them */
    close_http();
}

static void bodies_below_the_rate(void **state)
{
    (void)state;
    open_http((ek_http_opts){.min_body_rate = 4096, .rate_window = 0.8, .body_timeout = 60});
    int fd[1];
    start_bodies(fd, 1);
    trickle(fd, 1, 1);
    struct pollfd p = {.fd = fd[0], .events = POLLIN};
    for (double end = ek_now() + 3; ek_now() < end && poll(&p, 1, 0) == 0;) trickle(fd, 1, 0.1);
    assert_true(fd[0] >= 0);
    check_reply(fd[0], "HTTP/1.1 408 ", "--limits body-rate\"}");
    int slow = client("POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 8\r\n\r\n");
    trickle(&slow, 1, 1.5); /* a small one may take its time */
    check_reply(slow, "HTTP/1.1 200 ", "xxxxxxxx");
    close_http();
}

static bool is_closed(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void too_many_connections(void **state)
{
    (void)state;
    open_http((ek_http_opts){.max_connections = 8, .always = is_health});
    int busy[8];
    for (int i = 0; i < 8; i++) busy[i] = client("GET /never HTTP/1.1\r\nhost: x\r\n\r\n");
    usleep(100000);
    double begin = ek_now();
    for (int i = 0; i < 20; i++) {
        check_reply(client("GET /echo HTTP/1.1\r\nhost: x\r\n\r\n"), "HTTP/1.1 503 ", "try again later\"}");
        check_reply(client("GET /health HTTP/1.1\r\nhost: x\r\n\r\n"), "HTTP/1.1 200 ", "content-length: 0\r\n\r\n");
    }
    assert_true(ek_now() - begin < 2);
    int idle[200]; /* beyond the limit too: others of them make room */
    for (int i = 0; i < 200; i++) idle[i] = client(i % 2 ? "" : "GET /hea");
    check_reply(client("GET /health HTTP/1.1\r\nhost: x\r\n\r\n"), "HTTP/1.1 200 ", "content-length: 0\r\n\r\n");
    for (int i = 0; i < 200; i++) close(idle[i]);
    for (int i = 0; i < 8; i++) close(busy[i]);
    usleep(800000);
    check_reply(client(POST("/echo", 1) "a"), "HTTP/1.1 200 ", "\r\n\r\na");
    close_http();
}

/* What carries no request makes room for what does: the oldest first. */
static void idle_connections_make_room(void **state)
{
    (void)state;
    open_http((ek_http_opts){.max_connections = 8});
    int idle[8];
    for (int i = 0; i < 8; i++) {
        idle[i] = client(i % 2 ? "GET /echo HTTP/1.1\r\nho" : "");
        usleep(20000);
    }
    for (int i = 0; i < 3; i++) check_reply(client(POST("/echo", 1) "a"), "HTTP/1.1 200 ", "\r\n\r\na");
    usleep(50000);
    assert_true(is_closed(idle[0]));
    int closed = 0;
    for (int i = 0; i < 8; i++) closed += is_closed(idle[i]);
    assert_in_range(closed, 1, 3);
    assert_false(is_closed(idle[7]));
    send_all(idle[7], "st: x\r\nconnection: close\r\n\r\n", 28);
    check_reply(idle[7], "HTTP/1.1 200 ", "content-length: 0\r\n\r\n");
    for (int i = 0; i < 7; i++) close(idle[i]);
    close_http();
}

static void readers_that_do_not_read(void **state)
{
    (void)state;
    open_http((ek_http_opts){.idle_timeout = 60});
    int fd[4], small = 4096;
    for (int i = 0; i < 4; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fd[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)ek_http_port(http)),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
        assert_int_equal(connect(fd[i], (struct sockaddr *)&a, sizeof a), 0);
        const char text[] = "POST /flood HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
        send_all(fd[i], text, sizeof text - 1);
    }
    wait_for(&n_handled, 4);
    usleep(300000);
    wait_for(&n_busy, 4);
    order = 1; /* a shutdown that cannot wait */
    for (double begin = ek_now(); n_busy > 0; usleep(10000))
        if (ek_now() - begin > 4) fail_msg("%d replies still wait for their readers", (int)n_busy);
    for (int i = 0; i < 4; i++) close(fd[i]);
    close_http();
}

static void a_request_that_does_not_arrive(void **state)
{
    (void)state;
    open_http((ek_http_opts){.body_timeout = 0.5});
    int fd = client("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab");
    check_reply(fd, "HTTP/1.1 408 ", "in time\"}");
    int silent = client("");
    ek_buf r = reply_of(silent); /* closed without a word */
    assert_int_equal(r.len, 0);
    ek_buf_fini(&r);
    close_http();
}

static void the_answer_survives_what_still_comes(void **state)
{
    (void)state;
    open_http((ek_http_opts){0});
    static char block[1 << 16];
    for (int i = 0; i < 3; i++) {
        int fd = client(i ? "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 20000000\r\n\r\n"
                          : "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1000000\r\n");
        for (int k = 0; k < 200; k++)
            if (send(fd, block, sizeof block, MSG_NOSIGNAL) < 0) fail_msg("cut off after %d blocks", k);
        check_reply(fd, "HTTP/1.1 413 ", "than the limit\"}");
    }
    close_http();
}

/* Bytes are sent from where they lie, in order, and let go once: when they are sent, of HEAD, when nobody reads them.
 */
static void lent_bytes(void **state)
{
    (void)state;
    open_http((ek_http_opts){.max_unsent = 64 << 10});
    memset(lent, 'x', sizeof lent);
    static const struct {
        const char *path, *ends;
    } rows[] = {
        {"/lent", "xxmidend"}, {"/pieces", "xx\r\n4\r\ntail\r\n0\r\n\r\n"}, {"/told", "xx\r\n4\r\ntold\r\n0\r\n\r\n"}};
    for (size_t i = 0; i < 3; i++) {
        char text[200];
        n_released = 0;
        snprintf(text, sizeof text, "POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                 rows[i].path);
        check_reply(client(text), "HTTP/1.1 200 ", rows[i].ends);
        assert_int_equal(n_released, 1);
    }
    check_reply(client("HEAD /lent HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"), "HTTP/1.1 200 ", "\r\n\r\n");
    assert_int_equal(n_released, 2);
    int fd = client("GET /lent HTTP/1.1\r\nhost: x\r\n\r\n");
    wait_for(&n_handled, 5);
    close(fd);
    wait_for(&n_released, 3);
    close_http();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_any_size),
        cmocka_unit_test(ambiguous_heads),
        cmocka_unit_test(a_half_closed_client_gets_its_answer),
        cmocka_unit_test(half_sent_bodies),
        cmocka_unit_test(too_many_connections),
        cmocka_unit_test(idle_connections_make_room),
        cmocka_unit_test(bodies_that_trickle),
        cmocka_unit_test(bodies_below_the_rate),
        cmocka_unit_test(readers_that_do_not_read),
        cmocka_unit_test(a_request_that_does_not_arrive),
        cmocka_unit_test(the_answer_survives_what_still_comes),
        cmocka_unit_test(lent_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
