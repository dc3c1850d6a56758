/* serve/events: ZMTP as peers speak it, and peers that subscribe to much, come in numbers, or do not read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash/rng.h"
#include "serve/events/peers.h"

static const char topic[] = "kv@h:1@m";

/* --- the protocol --- */

static void add_ready(ek_buf *b, const char *type)
{
    char body[64];
    const int n = snprintf(body + 22, sizeof body - 22, "%s", type);
    memcpy(body, "\5READY\13Socket-Type\0\0\0", 21);
    body[21] = (char)n;
    ek_buf_char(b, 4), ek_buf_char(b, (char)(22 + n)), ek_buf_add(b, body, (size_t)(22 + n));
}

static void add_greeting(ek_buf *b, const char *type)
{
    ek_buf all = {0};
    ek_zmtp_greet(&all, false);
    ek_buf_add(b, all.data, 64);
    ek_buf_fini(&all);
    add_ready(b, type);
}

static void add_subscription(ek_buf *b, bool on, const char *name)
{
    char body[300];
    const int n = snprintf(body, sizeof body, "%c%s", on ? 1 : 2, name);
    body[0] = on;
    ek_zmtp_frame(b, body, (size_t)n, false);
}

/* All that bytes say, `step` of them at a time; -1: they are refused. */
static int say(ek_zmtp *z, const ek_buf *b, size_t step, ek_zmtp_news *news, int max)
{
    ek_buf out = {0};
    int n = 0;
    for (size_t at = 0; at < b->len;) {
        size_t k = b->len - at < step ? b->len - at : step;
        if (k > sizeof z->in - z->n) k = sizeof z->in - z->n;
        assert_true(k > 0); /* there is always room for a frame */
        memcpy(z->in + z->n, b->data + at, k);
        z->n += k, at += k;
        for (ek_zmtp_news one = EK_ZMTP_OTHER; one != EK_ZMTP_NOTHING;) {
            if (ek_zmtp_next(z, &one, &out)) {
                ek_buf_fini(&out);
                return -1;
            }
            if (one != EK_ZMTP_NOTHING && n < max) news[n++] = one;
        }
    }
    ek_buf_fini(&out);
    return n;
}

static void what_peers_say(void **state)
{
    static const size_t steps[] = {1, 7, 64, 5000};
    static const ek_zmtp_news want[] = {EK_ZMTP_READY,        EK_ZMTP_SUBSCRIBED, EK_ZMTP_SUBSCRIBED, EK_ZMTP_OTHER,
                                        EK_ZMTP_UNSUBSCRIBED, EK_ZMTP_SUBSCRIBED, EK_ZMTP_PING,       EK_ZMTP_OTHER};
    (void)state;
    ek_buf b = {0};
    add_greeting(&b, "SUB");
    add_subscription(&b, true, "");
    add_subscription(&b, true, topic);
    add_subscription(&b, true, "kv@h:1@model");
    add_subscription(&b, false, "kv@");
    ek_buf_add(&b, "\4\14\11SUBSCRIBEkv", 14);
    ek_buf_add(&b, "\4\11\4PING\0\1ab", 11);
    ek_buf_add(&b, "\0\3xyz", 5);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        ek_zmtp z = {.topic = topic};
        ek_zmtp_news news[20];
        assert_int_equal(say(&z, &b, steps[i], news, 20), 8);
        for (int k = 0; k < 8; k++) assert_int_equal(news[k], want[k]);
    }
    ek_buf_fini(&b);
}

static void what_is_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {{"GET / HTTP/1.1\r\n", 16},
               {"\1\0\0", 3},                      /* ZMTP 1.0 */
               {"\377\0\0\0\0\0\0\0\1\177\1", 11}, /* ZMTP 2.0 */
               {"\377\0\0\0\0\0\0\0\1\177\3\0CURVE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 35}};
    static const char *const types[] = {"PUB", "DEALER", "", "SUBS"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_zmtp z = {.topic = topic};
        ek_buf b = {0};
        ek_buf_add(&b, bad[i].bytes, bad[i].n);
        assert_int_equal(say(&z, &b, 3, NULL, 0), -1);
        ek_buf_fini(&b);
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        ek_zmtp z = {.topic = topic};
        ek_buf b = {0};
        add_greeting(&b, types[i]);
        assert_int_equal(say(&z, &b, 50, NULL, 0), -1);
        ek_buf_fini(&b);
    }
    ek_zmtp z = {.topic = topic};
    ek_buf b = {0};
    add_greeting(&b, "SUB");
    ek_buf_add(&b, "\2\0\0\0\0\0\0\4\1", 9); /* 1,025 bytes */
    assert_int_equal(say(&z, &b, 50, NULL, 0), -1);
    ek_buf_fini(&b);
    /* Any bytes: an end, and nothing beyond the structure (the sanitizers look). */
    for (uint64_t seed = 0; seed < 20000; seed++) {
        ek_zmtp any = {.router = seed % 2, .topic = topic};
        ek_buf c = {0};
        if (seed % 4 < 3) add_greeting(&c, seed % 2 ? "DEALER" : "SUB");
        for (uint64_t i = 0; i < 40; i++) ek_buf_char(&c, (char)(ek_mix64(seed * 1000 + i) % (i % 3 ? 256 : 12)));
        if (seed % 5 == 0 && c.len > 70) c.data[64 + ek_mix64(seed) % (c.len - 64)] ^= (char)seed;
        say(&any, &c, 1 + seed % 90, NULL, 0);
        ek_buf_fini(&c);
    }
}

/* --- peers --- */

static int n_subscribed;

static void note(void *arg)
{
    (void)arg;
    n_subscribed++;
}

static ek_peers *open_peers(void)
{
    ek_events_address a;
    ek_peers *p;
    assert_int_equal(ek_events_address_parse(&a, "--kv-events", "@tcp://127.0.0.1:0", true), EK_OK);
    const ek_peers_opts o = {.address = &a, .topic = topic, .subscribed = note};
    assert_int_equal(ek_peers_open(&p, &o), EK_OK);
    n_subscribed = 0;
    return p;
}

static void turn(ek_peers *p, int times)
{
    struct pollfd fds[EK_PEERS_FDS];
    for (int i = 0; i < times; i++) {
        const int n = ek_peers_poll(p, fds);
        assert_in_range(n, 0, EK_PEERS_FDS);
        poll(fds, (nfds_t)n, 1);
        ek_peers_turn(p, fds, n);
    }
}

/* From 127.0.0.host, with a greeting and what b holds. */
static int join(ek_peers *p, int host, ek_buf *more)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f000000 + (uint32_t)host)}},
                       to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    to.sin_port = htons((uint16_t)atoi(strrchr(ek_peers_endpoint(p), ':') + 1));
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    connect(fd, (struct sockaddr *)&to, sizeof to);
    turn(p, 2);
    ek_buf b = {0};
    add_greeting(&b, "SUB");
    if (more) ek_buf_add(&b, more->data, more->len);
    for (size_t at = 0; at < b.len;) {
        const ssize_t n = send(fd, b.data + at, b.len - at, MSG_NOSIGNAL);
        if (n > 0) at += (size_t)n;
        turn(p, 1);
    }
    ek_buf_fini(&b);
    turn(p, 3);
    return fd;
}

static void publish(ek_peers *p, uint64_t number, size_t n)
{
    ek_buf m = {0};
    char *payload = calloc(1, n);
    ek_zmtp_frame(&m, topic, strlen(topic), true);
    ek_zmtp_frame(&m, &number, sizeof number, true);
    ek_zmtp_frame(&m, payload, n, false);
    ek_peers_publish(p, &m);
    free(payload);
}

/* What fd has got since it joined, to the end of what is there: the numbers of whole messages, in `number`. */
static int read_all(ek_peers *p, int fd, size_t n_payload, uint64_t *number, int max, bool *open)
{
    ek_buf b = {0};
    char in[65536];
    int n = 0;
    *open = true;
    for (double end = ek_now() + 0.3; ek_now() < end;) {
        const ssize_t got = recv(fd, in, sizeof in, 0);
        if (got > 0) ek_buf_add(&b, in, (size_t)got), end = ek_now() + 0.3;
        if (got == 0) *open = false;
        if (got == 0) break;
        turn(p, 1);
    }
    const size_t head = 64 + 2 + 26, long_head = n_payload > 255 ? 9 : 2, each = 2 + 8 + 2 + 8 + long_head + n_payload;
    size_t at = b.len < head ? b.len : head;
    for (; at + each <= b.len && n < max; at += each, n++) {
        assert_memory_equal(b.data + at + 2, topic, 8);
        memcpy(&number[n], b.data + at + 12, 8);
    }
    assert_int_equal(at, b.len); /* messages are whole */
    ek_buf_fini(&b);
    return n;
}

static void topics_are_counted_not_kept(void **state)
{
    (void)state;
    ek_peers *p = open_peers();
    ek_buf b = {0};
    bool open;
    uint64_t number[10];
    for (int i = 0; i < 20000; i++) {
        char name[64];
        snprintf(name, sizeof name, "%d is a topic that nobody publishes", i);
        add_subscription(&b, true, name);
    }
    const int many = join(p, 1, &b);
    assert_int_equal(n_subscribed, 0);
    ek_buf_clear(&b);
    add_subscription(&b, true, "kv@"), add_subscription(&b, true, ""), add_subscription(&b, false, "kv@");
    const int one = join(p, 1, &b);
    assert_int_equal(n_subscribed, 1);
    ek_buf_clear(&b);
    add_subscription(&b, true, "kv@"), add_subscription(&b, false, "kv@");
    const int none = join(p, 1, &b);
    for (uint64_t i = 0; i < 5; i++) publish(p, i, 300);
    assert_int_equal(read_all(p, many, 300, number, 10, &open), 0);
    assert_true(open);
    assert_int_equal(read_all(p, one, 300, number, 10, &open), 5);
    assert_int_equal(number[4], 4);
    assert_int_equal(read_all(p, none, 300, number, 10, &open), 0);
    ek_buf_fini(&b);
    close(many), close(one), close(none);
    ek_peers_close(p);
}

/* One address takes all places: one more of it changes nothing, and another address finds one. */
static void an_address_does_not_take_all_places(void **state)
{
    (void)state;
    ek_peers *p = open_peers();
    ek_buf b = {0};
    bool open;
    uint64_t number[10];
    int fd[EK_PEERS + 30];
    add_subscription(&b, true, "");
    for (int i = 0; i < EK_PEERS + 30; i++) fd[i] = join(p, 1, &b);
    const int other = join(p, 2, &b);
    publish(p, 7, 10);
    assert_int_equal(read_all(p, other, 10, number, 10, &open), 1);
    assert_int_equal(read_all(p, fd[0], 10, number, 10, &open), 1);
    int n_open = 0;
    for (int i = 0; i < EK_PEERS + 30; i++) {
        char c[4096];
        ssize_t n;
        while ((n = recv(fd[i], c, sizeof c, 0)) > 0) continue;
        n_open += n < 0 && errno == EAGAIN;
        close(fd[i]);
    }
    assert_int_equal(n_open, EK_PEERS - 1);
    close(other);
    ek_buf_fini(&b);
    ek_peers_close(p);
}

/* Who does not read loses the oldest, and gets whole messages when it reads. */
static void who_does_not_read_loses_the_oldest(void **state)
{
    enum { MESSAGES = 3000, PAYLOAD = 20000 };
    static uint64_t number[MESSAGES];
    (void)state;
    ek_peers *p = open_peers();
    ek_buf b = {0};
    bool open;
    add_subscription(&b, true, "kv");
    const int deaf = join(p, 1, &b);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        publish(p, i, PAYLOAD);
        turn(p, 1);
    }
    const int n = read_all(p, deaf, PAYLOAD, number, MESSAGES, &open);
    assert_true(open);
    assert_in_range(n, EK_PEERS_UNREAD, MESSAGES - 1);
    for (int i = 1; i < n; i++) assert_true(number[i] > number[i - 1]);
    assert_int_equal(number[0], 0);
    assert_int_equal(number[n - 1], MESSAGES - 1);
    assert_int_equal(number[n - EK_PEERS_UNREAD], MESSAGES - EK_PEERS_UNREAD);
    ek_buf_fini(&b);
    close(deaf);
    ek_peers_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_peers_say),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(topics_are_counted_not_kept),
        cmocka_unit_test(an_address_does_not_take_all_places),
        cmocka_unit_test(who_does_not_read_loses_the_oldest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
