/* cache/shared: waits that end when they should: for a name server that does not answer, and for the rate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "bed.h"
#include "cache/shared/shared.h"
#include "base/address.h"
#include "cache/store.h"

/* --- a resolver that answers for names of its own, late --- */

static atomic_int asked;
static atomic_bool held;

/* In place of the system's. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    static int (*system)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!system) *(void **)&system = dlsym(RTLD_NEXT, "getaddrinfo");
    if (hints->ai_flags & AI_NUMERICHOST) return system(host, service, hints, out);
    atomic_fetch_add(&asked, 1);
    while (!strcmp(host, "dead.test") && atomic_load(&held)) usleep(1000);
    return strcmp(host, "here.test") ? EAI_NONAME : system("127.0.0.1", service, hints, out);
}

static void let_go(void)
{
    atomic_store(&held, false);
    usleep(100000); /* those that were left behind end */
}

static void a_name_is_looked_up_until_a_deadline(void **state)
{
    (void)state;
    struct addrinfo *a;
    atomic_bool stop = false;
    assert_int_equal(ek_resolve(&a, "::1", 1, ek_now() + 1, &stop), EK_OK);
    freeaddrinfo(a);
    assert_int_equal(atomic_load(&asked), 0); /* an address */
    assert_int_equal(ek_resolve(&a, "here.test", 1, ek_now() + 1, &stop), EK_OK);
    freeaddrinfo(a);
    assert_int_equal(ek_resolve(&a, "nowhere.test", 1, ek_now() + 1, &stop), EK_EIO);
    atomic_store(&held, true);
    double begin = ek_now();
    assert_int_equal(ek_resolve(&a, "dead.test", 1, ek_now() + 0.2, &stop), EK_ETIMEOUT);
    assert_true(ek_now() - begin >= 0.2 && ek_now() - begin < 1);
    atomic_store(&stop, true);
    begin = ek_now();
    assert_int_equal(ek_resolve(&a, "dead.test", 1, ek_now() + 5, &stop), EK_ETIMEOUT);
    assert_true(ek_now() - begin < 1);
    usleep(100000); /* its thread has begun */
    const int before = atomic_load(&asked);
    for (int i = 0; i < 20; i++) assert_int_equal(ek_resolve(&a, "dead.test", 1, ek_now(), NULL), EK_ETIMEOUT);
    usleep(100000);
    assert_in_range(atomic_load(&asked) - before, 1, 2); /* four at a time; two were there */
    let_go();
    assert_int_equal(ek_resolve(&a, "here.test", 1, ek_now() + 1, NULL), EK_OK);
    freeaddrinfo(a);
}

static void closing_does_not_wait_for_a_resolver(void **state)
{
    (void)state;
    const ek_shared_opts o = {.url = "redis://dead.test", .max_bytes = 1e6};
    ek_store_backend b;
    atomic_store(&held, true);
    const int before = atomic_load(&asked);
    assert_int_equal(ek_store_shared_open(&b, &o, "a model", &bed_layout), EK_OK);
    for (double end = ek_now() + 5; atomic_load(&asked) < before + 2 && ek_now() < end;) usleep(1000);
    const double begin = ek_now();
    b.close(b.arg);
    assert_true(ek_now() - begin < 1);
    let_go();
}

/* --- a server that has every page, at once --- */

typedef struct giver {
    int fd, port;
    size_t n; /* bytes of a record */
} giver;

static void *give_to(void *arg)
{
    giver *g = arg;
    char in[4096], head[32];
    char *record = calloc(1, g->n + 2);
    memcpy(record + g->n, "\r\n", 2);
    snprintf(head, sizeof head, "$%zu\r\n", g->n);
    const int fd = accept(g->fd, NULL, NULL);
    for (ssize_t got; fd >= 0 && (got = recv(fd, in, sizeof in - 1, 0)) > 0;) {
        in[got] = 0;
        if (!strstr(in, "GET\r\n")) send(fd, "+PONG\r\n", 7, MSG_NOSIGNAL);
        for (const char *at = in; (at = strstr(at, "GET\r\n")) != NULL; at++) {
            send(fd, head, strlen(head), MSG_NOSIGNAL);
            send(fd, record, g->n + 2, MSG_NOSIGNAL);
        }
    }
    if (fd >= 0) close(fd);
    free(record);
    return NULL;
}

/* However often pages are asked for: at no time have more bytes come than the rate gives, and what is on its way. */
static void asking_does_not_end_the_wait_for_the_rate(void **state)
{
    enum { RATE = 400000, SECONDS = 1 };
    static const bool full[EK_KIND_COUNT] = {[EK_FULL] = true};
    (void)state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof a;
    char url[64];
    ek_store_page p;
    bed_fill(&p, 1, 0);
    giver g = {.fd = socket(AF_INET, SOCK_STREAM, 0), .n = ek_record_bytes(&bed_layout, &p, EK_FULL)};
    assert_int_equal(bind(g.fd, (struct sockaddr *)&a, size), 0);
    assert_int_equal(listen(g.fd, 8), 0);
    getsockname(g.fd, (struct sockaddr *)&a, &size);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, give_to, &g), 0);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", ntohs(a.sin_port));
    const ek_shared_opts o = {.url = url, .max_bytes = (double)g.n, .rate = RATE};
    ek_store_backend b;
    assert_int_equal(ek_store_shared_open(&b, &o, "a model", &bed_layout), EK_OK);
    for (double end = ek_now() + 5; atomic_load(&b.shared->connected) < 2 && ek_now() < end;) usleep(1000);
    const double begin = ek_now();
    double now = begin;
    for (int i = 0; now < begin + SECONDS; i++, now = ek_now()) {
        bed_fill(&p, 1, i % 40);
        p.bytes[0] = p.bytes[1] = NULL;
        b.ahead(b.arg, NULL, NULL);
        b.ahead(b.arg, &p, full);
        usleep(2000);
        const double got = (double)atomic_load(&b.shared->read_bytes),
                     max = RATE * (ek_now() - begin) + 2.0 * (double)g.n;
        if (got > max) fail_msg("after %.3f s %.0f bytes had come, not %.0f", ek_now() - begin, got, max);
    }
    assert_true((double)atomic_load(&b.shared->read_bytes) > RATE * SECONDS / 4.0);
    b.close(b.arg);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    close(g.fd);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_looked_up_until_a_deadline),
        cmocka_unit_test(closing_does_not_wait_for_a_resolver),
        cmocka_unit_test(asking_does_not_end_the_wait_for_the_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
