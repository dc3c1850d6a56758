/* --open-paths: which paths need no key where there are keys, for whom; and what routers ask that often costs little.
 */
#include "helper.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "serve/http/access.h"

static ek_server *server;

static int status_of(const char *method, const char *path, const char *headers)
{
    ek_buf r = ask_server(method, path, headers,
                          strcmp(method, "POST") ? "" : "{\"prompt\":\"a\",\"messages\":[],\"tokens\":[5]}");
    int status = 0;
    sscanf(ek_buf_text(&r), "HTTP/1.1 %d ", &status);
    ek_buf_fini(&r);
    return status;
}

#define HERE  "host: localhost\r\n"
#define PROXY HERE "x-forwarded-for: 192.0.2.1\r\n"
#define KEY   HERE "authorization: Bearer k1\r\n"

typedef struct path {
    const char *method, *path;
} path;
static const path of_routers[] = {
    {"GET", "/metrics"},
    {"GET", "/load"},
    {"GET", "/version"},
    {"GET", "/v1/models"},
    {"GET", "/models"},
    {"GET", "/v1/models/tiny"},
    {"POST", "/tokenize"},
    {"POST", "/v1/tokenize"},
    {"POST", "/detokenize"},
    {"POST", "/v1/completions/render"},
    {"POST", "/completions/render"},
    {"POST", "/v1/chat/completions/render"},
};
enum { N_OF_ROUTERS = sizeof of_routers / sizeof *of_routers, MODELS = 3, TOKENIZE = 6, DETOKENIZE = 8 };
/* Those that no option opens. */
static const path closed[] = {{"POST", "/v1/completions"},
                              {"POST", "/v1/chat/completions"},
                              {"POST", "/v1/messages"},
                              {"POST", "/v1/responses"},
                              {"GET", "/debug"},
                              {"GET", "/props"},
                              {"GET", "/slots"},
                              {"GET", "/api/tags"},
                              {"POST", "/v1/messages/count_tokens"},
                              {"GET", "/v1/responses/r"}};

/* Clients learn there whether their key is valid: it stays closed unless it is named. */
static bool is_models(int i)
{
    return i >= MODELS && i < TOKENIZE;
}

static void is(path p, const char *headers, bool open)
{
    int status = status_of(p.method, p.path, headers);
    if (open ? status == 401 || status == 403 || status == 0 : status != 401)
        fail_msg("%s %s with %s: %d", p.method, p.path, headers, status);
}

static void always(void)
{
    static const path health[] = {
        {"GET", "/health"}, {"GET", "/ready"}, {"GET", "/ping"}, {"POST", "/ping"}, {"GET", "/api/version"}};
    for (size_t i = 0; i < sizeof health / sizeof *health; i++) is(health[i], PROXY, true);
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) is(closed[i], HERE, false);
    for (int i = 0; i < N_OF_ROUTERS; i++) is(of_routers[i], KEY, true);
}

static void start(const char *open_paths)
{
    server = start_tiny(2, 16, (ek_server_opts){.api_keys = "k1,k2", .open_paths = open_paths});
}

static void by_default(void **state)
{
    (void)state;
    start(NULL);
    always();
    for (int i = 0; i < N_OF_ROUTERS; i++) {
        is(of_routers[i], HERE, !is_models(i));
        is(of_routers[i], PROXY, i < MODELS);
        is(of_routers[i], HERE "via: 1.1 proxy\r\n", i < MODELS);
        is(of_routers[i], HERE "forwarded: for=192.0.2.1\r\n", i < MODELS);
        /* A browser of this machine: a page of somebody else's, and a name that came to mean this machine. */
        is(of_routers[i], HERE "origin: https://evil.example\r\n", i < MODELS);
        is(of_routers[i], "host: evil.example\r\n", i < MODELS);
        is(of_routers[i], HERE "authorization: Bearer wrong\r\n", !is_models(i));
    }
    stop_tiny();
}

static void none(void **state)
{
    (void)state;
    start("none");
    always();
    for (int i = 0; i < N_OF_ROUTERS; i++) is(of_routers[i], HERE, false);
    stop_tiny();
}

static void some(void **state)
{
    (void)state;
    start("/tokenize, /v1/models");
    always();
    for (int i = 0; i < N_OF_ROUTERS; i++) is(of_routers[i], PROXY, i >= MODELS && i < DETOKENIZE);
    stop_tiny();
    start("/render,loopback");
    for (int i = 0; i < N_OF_ROUTERS; i++) is(of_routers[i], PROXY, i > DETOKENIZE);
    for (int i = 0; i < N_OF_ROUTERS; i++) is(of_routers[i], HERE, !is_models(i));
    stop_tiny();
}

static void words(void **state)
{
    (void)state;
    ek_open_paths o;
    static const char *const bad[] = {"/",         "/v1",       "/health", "/v1/messages", "tokenize",
                                      "loopback2", "/metrics/", "all",     "none,/x",      "/v1/completions"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(ek_open_paths_parse(&o, bad[i]), EK_EINVAL);
    assert_int_equal(ek_open_paths_parse(&o, ""), EK_OK);
    assert_false(o.loopback || o.everybody);
    assert_int_equal(ek_open_paths_parse(&o, " none ,, "), EK_OK);
    assert_int_equal(ek_open_paths_parse(&o, "/v1/metrics,/v1/tokenize"), EK_OK);
    assert_true(ek_open_paths_to_all(&o, "/metrics") && ek_open_paths_to_all(&o, "/tokenize"));
    assert_false(ek_open_paths_to_all(&o, "/detokenize"));
}

static double number(const ek_buf *text, const char *name)
{
    const char *at = text->data;
    size_t n = strlen(name);
    while ((at = strstr(at, name)) && !(at[-1] == '\n' && at[n] == ' ')) at += n;
    if (!at) fail_msg("no %s", name);
    return atof(at + n);
}

/* A router scrapes twenty times a second, and there are several. What is counted is texts that were made, and CPU time
 * of the event loop's turns, not how long it took. */
static void scrapes_are_cheap(void **state)
{
    (void)state;
    start(NULL);
    enum { CROWD = 200, SPACED = 40 };
    ek_buf before = ask_server("GET", "/metrics", HERE, ""), after = {0};
    for (int i = 0; i < CROWD; i++) {
        ek_buf_fini(&after);
        after = ask_server("GET", "/metrics", HERE, "");
    }
    double made = number(&after, "evenkeel_metrics_texts_total") - number(&before, "evenkeel_metrics_texts_total");
    double uptime = number(&after, "evenkeel_uptime_seconds") - number(&before, "evenkeel_uptime_seconds") + 1;
    assert_true(made <= 50 * uptime + 2);
    ek_buf_fini(&before);
    before = after, after = (ek_buf){0};
    for (int i = 0; i < SPACED; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 21000000}, NULL);
        ek_buf_fini(&after);
        after = ask_server("GET", "/metrics", HERE, "");
    }
    made = number(&after, "evenkeel_metrics_texts_total") - number(&before, "evenkeel_metrics_texts_total");
    double cpu = number(&after, "evenkeel_event_turn_seconds_sum") - number(&before, "evenkeel_event_turn_seconds_sum");
    assert_true(made >= SPACED / 2 && made <= SPACED + 1);
    printf("measured: a scrape of /metrics takes %.0f us of the event loop\n", 1e6 * cpu / SPACED);
    assert_true(cpu / SPACED < 2e-3); /* twenty a second: less than 4 percent of a core, in the worst of builds */
    ek_buf_fini(&before), ek_buf_fini(&after);
    stop_tiny();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_default),        cmocka_unit_test(none), cmocka_unit_test(some), cmocka_unit_test(words),
        cmocka_unit_test(scrapes_are_cheap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
