/* cache/shared: what is parsed, and servers that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "bed.h"
#include "cache/shared/shared.h"
#include "cache/shared/redis.h"
#include "cache/store.h"
#include "cache/shared/link.h"

static void urls_are_read_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *user, *password;
        int port, db;
        bool tls;
    } good[] = {
        {"redis://h", "h", NULL, NULL, 6379, 0, false},
        {"REDIS://127.0.0.1:7000/3", "127.0.0.1", NULL, NULL, 7000, 3, false},
        {"rediss://cache.example.com/", "cache.example.com", NULL, NULL, 6379, 0, true},
        {"valkey://:p@h:1", "h", NULL, "p", 1, 0, false},
        {"valkeys://u:p%40%3a%2F@[::1]:65535/65535", "::1", "u", "p@:/", 65535, 65535, true},
        {"redis://u:a@b@h", "h", "u", "a@b", 6379, 0, false},
        {"redis://[fe80::1%25eth0]", "fe80::1%25eth0", NULL, NULL, 6379, 0, false},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ek_shared_url u;
        char shown[EK_SHARED_TEXT];
        if (ek_shared_url_parse(&u, good[i].text)) fail_msg("%s: %s", good[i].text, ek_err_text());
        assert_string_equal(u.host, good[i].host);
        assert_int_equal(u.port, good[i].port);
        assert_int_equal(u.db, good[i].db);
        assert_int_equal(u.tls, good[i].tls);
        if (good[i].user) assert_string_equal(u.user, good[i].user);
        else assert_null(u.user);
        if (good[i].password) assert_string_equal(u.password, good[i].password);
        else assert_null(u.password);
        ek_shared_url_text(&u, shown);
        assert_null(strstr(shown, "@"));
        ek_shared_url_fini(&u);
    }
    static const char *const bad[] = {
        "",
        "h:6379",
        "http://h",
        "redis://",
        "redis://:6379",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:",
        "redis://h:1x",
        "redis://h/x",
        "redis://h/65536",
        "redis://h/1/2",
        "redis://h/-1",
        "redis://u@h",
        "redis://u:@h",
        "redis://u:s3cret%@h",
        "redis://u:s3cret%4@h",
        "redis://u:s3cret%zz@h",
        "redis://u:s3cret%00@h",
        "redis://[::1",
        "redis://[::1]x",
        "redis://a b",
        "redis://u:s3cret@",
        "redis://u:s3cret@h:99999",
        "redis://h?x=1",
        "redis://\x1b[2J",
        "s3cret@h",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_shared_url u;
        if (ek_shared_url_parse(&u, bad[i]) != EK_EINVAL) fail_msg("%s was taken", bad[i]);
        assert_null(u.host);
        assert_null(u.password);
        assert_null(strstr(ek_err_text(), "s3cret"));
        assert_null(strchr(ek_err_text(), '\x1b'));
        assert_non_null(strstr(ek_err_text(), "redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]"));
    }
    char *longest = malloc(5000);
    memset(longest, 'h', 4999);
    memcpy(longest, "redis://", 8);
    longest[4999] = '\0';
    ek_shared_url u;
    assert_int_equal(ek_shared_url_parse(&u, longest), EK_EINVAL);
    assert_true(strlen(ek_err_text()) < 400);
    free(longest);
}

/* One changed bit anywhere, another length, another page's, kind's or place's name: not the page. */
static void a_record_is_its_pages_alone(void **state)
{
    (void)state;
    static uint8_t back[40000];
    ek_store_page p, other;
    bed_fill(&p, 3, 1);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        size_t n = ek_record_bytes(&bed_layout, &p, k);
        uint8_t *record = malloc(n + 1);
        bed_fill(&p, 3, 1);
        ek_record_write(record, &bed_layout, &p, k);
        ek_store_page got = p;
        got.bytes[k] = back;
        assert_true(ek_record_read(record, n, &bed_layout, &got, k));
        bed_fill(&p, 3, 1);
        assert_memory_equal(back, p.bytes[k], n - EK_RECORD_HEAD);
        for (uint64_t c = 0; c < 400; c++) {
            size_t bit = c < 8 * EK_RECORD_HEAD ? c : ek_mix64(c) % (8 * n);
            record[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_false(ek_record_read(record, n, &bed_layout, &got, k));
            record[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        assert_false(ek_record_read(record, n - 1, &bed_layout, &got, k));
        assert_false(ek_record_read(record, n + 1, &bed_layout, &got, k));
        assert_false(ek_record_read(record, 0, &bed_layout, &got, k));
        other = got, other.chain.h[31] ^= 1;
        assert_false(ek_record_read(record, n, &bed_layout, &other, k));
        other = got, other.token[63] ^= 1;
        assert_false(ek_record_read(record, n, &bed_layout, &other, k));
        other = got, other.content[5].h[0] ^= 1;
        assert_false(ek_record_read(record, n, &bed_layout, &other, k));
        other = got, other.depth = 2;
        assert_false(ek_record_read(record, n, &bed_layout, &other, k));
        assert_true(ek_record_read(record, n, &bed_layout, &got, k));
        free(record);
    }
}

/* --- replies --- */

typedef struct speaker {
    int fd;
    const char *text;
    size_t n, piece;
} speaker;

/* Greets, then says the text in pieces and leaves. */
static void *speak(void *arg)
{
    const speaker *s = arg;
    char in[64];
    const int one = 1, fd = accept(s->fd, NULL, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (recv(fd, in, sizeof in, 0) > 0) send(fd, "+PONG\r\n", 7, MSG_NOSIGNAL);
    for (size_t i = 0; i < s->n; i += s->piece)
        send(fd, s->text + i, s->piece < s->n - i ? s->piece : s->n - i, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

/* The error of reading one reply, at most 100 bytes and 16 KiB, or those behind it that were as expected. */
static ek_err hear(const char *text, size_t n, size_t piece, const ek_reply *expected, int count)
{
    speaker s = {.fd = socket(AF_INET, SOCK_STREAM, 0), .text = text, .n = n, .piece = piece};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof a;
    char address[64];
    ek_shared_url url;
    ek_redis *r;
    ek_reply got;
    pthread_t thread;
    assert_int_equal(bind(s.fd, (struct sockaddr *)&a, size), 0);
    assert_int_equal(listen(s.fd, 1), 0);
    getsockname(s.fd, (struct sockaddr *)&a, &size);
    assert_int_equal(pthread_create(&thread, NULL, speak, &s), 0);
    snprintf(address, sizeof address, "redis://127.0.0.1:%d", ntohs(a.sin_port));
    assert_int_equal(ek_shared_url_parse(&url, address), EK_OK);
    const ek_link_opts o = {.url = &url};
    assert_int_equal(ek_redis_open(&r, &o, ek_now() + 10), EK_OK);
    ek_err err = EK_OK;
    for (int i = 0; i < count && !err; i++) {
        err = ek_redis_read(r, &got, 100, ek_now() + 10);
        if (err || !expected) continue;
        assert_int_equal(got.kind, expected[i].kind);
        assert_true(got.number == expected[i].number);
        assert_int_equal(got.n, expected[i].n);
        assert_memory_equal(got.text, expected[i].text ? expected[i].text : "", got.n + 1);
    }
    ek_redis_close(r);
    ek_shared_url_fini(&url);
    pthread_join(thread, NULL);
    close(s.fd);
    return err;
}

static void replies_are_read_whole_or_refused(void **state)
{
    (void)state;
    static char with_nul[] = "a\0\r\nb", ok[] = "OK", no[] = "ERR no", none[] = "";
    static const char text[] =
        "+OK\r\n-ERR no\r\n:0\r\n:-9223372036854775808\r\n:9223372036854775807\r\n$5\r\na\0\r\nb\r\n"
        "$0\r\n\r\n$-1\r\n+\r\n";
    static const ek_reply expected[] = {
        {EK_REPLY_STATUS, 0, ok, 2},           {EK_REPLY_ERROR, 0, no, 6},
        {EK_REPLY_NUMBER, 0, none, 0},         {EK_REPLY_NUMBER, INT64_MIN, none, 0},
        {EK_REPLY_NUMBER, INT64_MAX, none, 0}, {EK_REPLY_BYTES, 0, with_nul, 5},
        {EK_REPLY_BYTES, 0, none, 0},          {EK_REPLY_NONE, 0, none, 0},
        {EK_REPLY_STATUS, 0, none, 0},
    };
    for (size_t piece = 1; piece < 8; piece++)
        assert_int_equal(hear(text, sizeof text - 1, piece, expected, sizeof expected / sizeof *expected), EK_OK);
    static const char *const wrong[] = {
        ":\r\n", ":-\r\n",  ":+1\r\n",    ":01\r\n",    ":-0\r\n", ":1a\r\n", ":9223372036854775808\r\n",
        "$\r\n", "$-2\r\n", "$1\r\nabc",  "$1\r\na\rb", "$1x\r\n", "*1\r\n",  ":-9223372036854775809\r\n",
        "_\r\n", "+OK\n",   "$16485\r\n", "\r\n",       ": 1\r\n", "#t\r\n",  ":18446744073709551616\r\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (hear(wrong[i], strlen(wrong[i]), 3, NULL, 1) != EK_EFORMAT) fail_msg("%s: %s", wrong[i], ek_err_text());
    static const char *const half[] = {"+OK\r", "$5\r\nab", ":1", "$1\r\na", "$1\r\na\r", ""};
    for (size_t i = 0; i < sizeof half / sizeof *half; i++)
        if (hear(half[i], strlen(half[i]), 3, NULL, 1) != EK_EIO) fail_msg("%s: %s", half[i], ek_err_text());
}

/* --- servers that are none --- */

typedef struct liar {
    int fd, port, way;
    pthread_t thread;
    atomic_bool stop;
} liar;

/* Answers the greeting, then lies to every command. */
static void serve_one(liar *l, int fd)
{
    static const char *const lies[] = {
        "$-1\r\n+OK\r\n:1\r\n",
        "*1000000000\r\n",
        "$900000000\r\n",
        "%1\r\n",
        "!!\r\n",
        "$5\r\nab",
        "-ERR no\r\n",
        "",
        ":99999999999999999999\r\n",
        "$-7\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
    };
    char in[65536];
    bool greeted = false;
    while (!atomic_load(&l->stop)) {
        struct timeval t = {.tv_usec = 20000};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
        ssize_t n = recv(fd, in, sizeof in, 0);
        if (n == 0) break;
        if (n < 0) continue;
        const char *say = greeted ? lies[(size_t)l->way % (sizeof lies / sizeof *lies)] : "+PONG\r\n";
        greeted = true;
        send(fd, say, strlen(say), MSG_NOSIGNAL);
        if (l->way == 2) { /* and the bytes, without an end */
            static char zeros[1 << 16];
            for (int i = 0; i < 2000 && send(fd, zeros, sizeof zeros, MSG_NOSIGNAL) > 0; i++) continue;
        }
    }
    close(fd);
}

static void *lie(void *arg)
{
    liar *l = arg;
    while (!atomic_load(&l->stop)) {
        int fd = accept(l->fd, NULL, NULL);
        if (fd >= 0) serve_one(l, fd);
    }
    return NULL;
}

static void a_liar_costs_time_and_little_of_it(void **state)
{
    (void)state;
    for (int way = 0; way < 11; way++) {
        liar l = {.way = way};
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t size = sizeof a;
        char url[64];
        l.fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(l.fd, (struct sockaddr *)&a, size), 0);
        assert_int_equal(listen(l.fd, 8), 0);
        getsockname(l.fd, (struct sockaddr *)&a, &size);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, lie, &l), 0);
        snprintf(url, sizeof url, "redis://127.0.0.1:%d", ntohs(a.sin_port));
        const ek_shared_opts o = {.url = url, .max_bytes = 1e8};
        ek_store_backend b;
        assert_int_equal(ek_store_shared_open(&b, &o, "a model", &bed_layout), EK_OK);
        for (double end = ek_now() + 5; atomic_load(&b.shared->connected) < 2 && ek_now() < end;) usleep(1000);
        double begin = ek_now();
        for (int i = 0; i < 20; i++) {
            ek_store_page page, *one = &page;
            bed_fill(&page, 1, i % 4);
            b.write(b.arg, &one, 1);
            for (int k = 0; k < 4; k++) assert_int_equal(bed_read(&b, 1, k), 0);
        }
        double took = ek_now() - begin;
        if (took > 8) print_message("lie %d: %.1f s\n", way, took);
        assert_true(took < 8);
        assert_true(atomic_load(&b.shared->errors) + atomic_load(&b.shared->wrong) > 0 || way == 0);
        b.close(b.arg);
        atomic_store(&l.stop, true);
        shutdown(l.fd, SHUT_RDWR);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        close(l.fd);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_are_read_or_refused),
        cmocka_unit_test(a_record_is_its_pages_alone),
        cmocka_unit_test(replies_are_read_whole_or_refused),
        cmocka_unit_test(a_liar_costs_time_and_little_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
