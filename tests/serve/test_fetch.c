/* Which addresses pictures may be fetched from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "serve/http/fetch.h"

static bool is_public(const char *text)
{
    struct sockaddr_storage a = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&a;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a;
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) a.ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) a.ss_family = AF_INET6;
    else fail_msg("%s", text);
    return ek_fetch_is_public((struct sockaddr *)&a);
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
        cmocka_unit_test(words),
        cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
