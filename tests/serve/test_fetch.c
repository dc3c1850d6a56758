/* Which addresses pictures may be fetched from, and how long a host may take. */
#define _GNU_SOURCE /* unshare */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "hub/curl.h"
#include "serve/fetch/fetch.h"

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage a = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&a;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a;
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) a.ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) a.ss_family = AF_INET6;
    else fail_msg("%s", text);
    return a;
}

static bool is_public(const char *text)
{
    const struct sockaddr_storage a = address_of(text);
    return ek_fetch_is_public((const struct sockaddr *)&a);
}

static bool is_own(const char *text)
{
    const struct sockaddr_storage a = address_of(text);
    return ek_own_address((const struct sockaddr *)&a);
}

static void addresses(void **state)
{
    (void)state;
    static const char *const public[] = {
        "1.1.1.1",         "8.8.8.8",      "9.255.255.255",   "11.0.0.0",       "100.63.255.255", "100.128.0.0",
        "126.255.255.255", "128.0.0.1",    "169.253.255.255", "169.255.0.0",    "172.15.255.255", "172.32.0.0",
        "192.0.1.0",       "192.167.0.1",  "192.169.0.0",     "198.17.255.255", "198.20.0.0",     "223.255.255.255",
        "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8",  "2001:4860::8888"};
    static const char *const others[] = {"0.0.0.0",
                                         "0.1.2.3",
                                         "10.0.0.1",
                                         "10.255.255.255",
                                         "100.64.0.1",
                                         "100.127.255.255",
                                         "127.0.0.1",
                                         "127.8.8.8",
                                         "169.254.0.1",
                                         "169.254.169.254",
                                         "172.16.0.1",
                                         "172.31.255.255",
                                         "192.0.0.1",
                                         "192.0.2.1",
                                         "192.168.0.1",
                                         "192.168.255.255",
                                         "198.18.0.1",
                                         "198.19.255.255",
                                         "198.51.100.1",
                                         "203.0.113.1",
                                         "224.0.0.1",
                                         "239.1.1.1",
                                         "240.0.0.1",
                                         "255.255.255.255",
                                         "::",
                                         "::1",
                                         "fe80::1",
                                         "fc00::1",
                                         "fdff::1",
                                         "ff02::1",
                                         "::ffff:127.0.0.1",
                                         "::ffff:10.0.0.1",
                                         "::127.0.0.1",
                                         "64:ff9b::7f00:1",
                                         "2001:db8::1",
                                         "2001::1",
                                         "2a00:1450::5efe:7f00:1",
                                         "2a00:1450::200:5efe:7f00:1",
                                         "2002:7f00:1::",
                                         "3fff::1",
                                         "fec0::1"};
    for (size_t i = 0; i < sizeof public / sizeof *public; i++)
        if (!is_public(public[i])) fail_msg("%s is refused", public[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_public(others[i])) fail_msg("%s is taken", others[i]);
    struct sockaddr local = {.sa_family = AF_UNIX};
    assert_false(ek_fetch_is_public(&local));
}

/* --- this machine's --- */

static void addresses_of_interfaces_are_own(void **state)
{
    (void)state;
    struct ifaddrs *all;
    int n = 0;
    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
        n++;
        assert_true(ek_own_address(i->ifa_addr));
        if (i->ifa_addr->sa_family != AF_INET) continue;
        char four[INET_ADDRSTRLEN], six[INET_ADDRSTRLEN + 16];
        const struct sockaddr_in *a = (const void *)i->ifa_addr;
        inet_ntop(AF_INET, &a->sin_addr, four, sizeof four);
        snprintf(six, sizeof six, "::ffff:%s", four);
        assert_true(is_own(six));
        snprintf(six, sizeof six, "2a00:1450::%s", four);
        assert_true(is_own(six));
    }
    freeifaddrs(all);
    assert_true(n > 0);
    assert_true(is_own("127.3.4.5"));
    assert_false(is_own("192.175.48.77"));
    assert_false(is_own("2606:4700::77"));
    struct sockaddr local = {.sa_family = AF_UNIX};
    assert_true(ek_own_address(&local));
}

enum { GOOD, NO_NETWORK, NOT_BEFORE, NOT_AFTER, NOT_MAPPED, NOT_SIX };

/* In a network of its own, whose only interface is lo. */
static int in_a_network(void)
{
    struct ifreq r = {.ifr_name = "lo"};
    struct in6_ifreq_like {
        struct in6_addr address;
        uint32_t prefix;
        int index;
    } six = {.prefix = 128};
    if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) return NO_NETWORK;
    const int fd = socket(AF_INET, SOCK_DGRAM, 0), fd6 = socket(AF_INET6, SOCK_DGRAM, 0);
    r.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r)) return NO_NETWORK;
    if (is_own("192.175.48.5") || is_own("::ffff:192.175.48.5") || is_own("2606:4700::5")) return NOT_BEFORE;
    const struct sockaddr_storage a = address_of("192.175.48.5");
    strcpy(r.ifr_name, "lo:1");
    memcpy(&r.ifr_addr, &a, sizeof r.ifr_addr);
    if (ioctl(fd, SIOCSIFADDR, &r)) return NO_NETWORK;
    if (!is_own("192.175.48.5")) return NOT_AFTER;
    if (!is_own("::ffff:192.175.48.5")) return NOT_MAPPED;
    six.index = (int)if_nametoindex("lo");
    inet_pton(AF_INET6, "2606:4700::5", &six.address);
    if (fd6 < 0 || ioctl(fd6, SIOCSIFADDR, &six)) return GOOD; /* without IPv6 */
    return is_own("2606:4700::5") && !is_own("2606:4700::6") ? GOOD : NOT_SIX;
}

/* An address that an interface gets while the server runs, public as it may be, is this machine's from then on. */
static void an_address_that_comes_later_is_own(void **state)
{
    (void)state;
    int status;
    const pid_t child = fork();
    if (child == 0) _exit(in_a_network());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_NETWORK) skip();
    assert_int_equal(WEXITSTATUS(status), GOOD);
}

/* --- hosts that dawdle --- */

typedef struct host {
    int fd, port;
    atomic_bool stop;
    pthread_t thread;
} host;

static void answer(const host *h, int fd)
{
    char in[2048] = "", out[256];
    if (recv(fd, in, sizeof in - 1, 0) <= 0) return;
    if (strstr(in, "/quick")) snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    else if (strstr(in, "/drip")) snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n");
    else if (strstr(in, "/chain"))
        snprintf(out, sizeof out,
                 "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:%d/chain\r\nconnection: close\r\n"
                 "content-length: 0\r\n\r\n",
                 h->port);
    else out[0] = 0;
    if (strstr(in, "/chain")) usleep(1500000); /* six of them: nine seconds */
    send(fd, out, strlen(out), MSG_NOSIGNAL);
    while (!strstr(in, "/quick") && !strstr(in, "/chain") && !atomic_load(&h->stop)) {
        usleep(100000);
        if (strstr(in, "/drip") && send(fd, "a", 1, MSG_NOSIGNAL) < 0) break;
    }
}

typedef struct visit {
    host *h;
    int fd;
} visit;

static void *serve(void *arg)
{
    visit v = *(visit *)arg;
    free(arg);
    answer(v.h, v.fd);
    close(v.fd);
    return NULL;
}

static void *take_in(void *arg)
{
    host *h = arg;
    pthread_t thread[64];
    int n = 0;
    for (int fd; n < 64 && (fd = accept(h->fd, NULL, NULL)) >= 0; n++) {
        visit *v = malloc(sizeof *v);
        *v = (visit){h, fd};
        if (pthread_create(&thread[n], NULL, serve, v)) abort();
    }
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    return NULL;
}

/* Whether it drips, says nothing or leads on and on: it is given up after some three seconds, and what is quick comes.
 */
static void who_dawdles_is_given_up(void **state)
{
    static const char *const path[] = {"quick", "drip", "silent", "chain"};
    (void)state;
    if (ek_curl_load()) skip();
    host h = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof a;
    assert_int_equal(bind(h.fd, (struct sockaddr *)&a, size), 0);
    assert_int_equal(listen(h.fd, 16), 0);
    getsockname(h.fd, (struct sockaddr *)&a, &size);
    h.port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&h.thread, NULL, take_in, &h), 0);
    ek_fetches f = {0};
    for (int i = 0; i < 4; i++) {
        char url[64];
        const int n = snprintf(url, sizeof url, "http://127.0.0.1:%d/%s", h.port, path[i]);
        ek_fetches_add(&f, url, (size_t)n);
    }
    const double begin = ek_now();
    ek_fetches_run(&f, EK_FETCH_ALL, NULL);
    assert_true(ek_now() - begin < 6);
    assert_int_equal(f.at[0].err, EK_OK);
    assert_int_equal(f.at[0].bytes.len, 5);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(f.at[i].err, EK_EINVAL);
        assert_int_equal(f.at[i].bytes.len, 0);
        assert_non_null(strstr(f.at[i].why, "is too slow: it is to send 32 KiB a second"));
    }
    ek_fetches_fini(&f);
    atomic_store(&h.stop, true);
    shutdown(h.fd, SHUT_RDWR);
    pthread_join(h.thread, NULL);
    close(h.fd);
}

static void words(void **state)
{
    (void)state;
    ek_fetch_from from;
    assert_int_equal(ek_fetch_parse(&from, "public"), EK_OK);
    assert_int_equal(from, EK_FETCH_PUBLIC);
    assert_int_equal(ek_fetch_parse(&from, "Public"), EK_EINVAL);
    assert_int_equal(ek_fetch_parse(&from, ""), EK_EINVAL);
}

static void lists(void **state)
{
    (void)state;
    ek_fetches f = {0};
    ek_fetches_add(&f, "http://a", 8);
    ek_fetches_add(&f, "http://ab", 9);
    assert_ptr_equal(ek_fetches_find(&f, "http://ab", 9), &f.at[1]);
    assert_null(ek_fetches_find(&f, "http://", 7));
    ek_fetches_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(addresses_of_interfaces_are_own),
        cmocka_unit_test(an_address_that_comes_later_is_own),
        cmocka_unit_test(who_dawdles_is_given_up),
        cmocka_unit_test(words),
        cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
