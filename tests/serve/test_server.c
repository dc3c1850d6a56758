/* The server beside its API: keys, web pages, readiness, metrics, time limits. The engine's steps can be made to hang,
 * to take long or to give other logits. */
/* runs: quiet */
#include "helper.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/executor.h"
#include "engine/sample/sampler.h"
#include "serve/http/access.h"
#include "serve/server_state.h"
#include "../support/files.h"

#define CHAT  "/v1/chat/completions"
#define SMALL "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"temperature\":0,\"max_tokens\":2}"
#define LONG  "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"ignore_eos\":true,\"max_tokens\":400%s}"

static ek_model *model;
static ek_engine *engine;
static ek_server *server;
static ek_executor real;
static atomic_int pause_us; /* per step */
static atomic_bool hang;
static atomic_int break_after; /* draws; then each gives another token. -1: never */

static ek_err step(void *arg, const ek_step *s)
{
    while (atomic_load(&hang)) usleep(1000);
    if (pause_us) usleep((unsigned)pause_us);
    return real.step(arg, s);
}

static const float *logits(void *arg, int row)
{
    static float other[4096];
    const float *l = real.logits(arg, row);
    if (break_after < 0 || break_after-- > 0) return l;
    memcpy(other, l, sizeof other);
    other[7] += 1;
    return other;
}

static uint64_t digest(void *arg, int row)
{
    return ek_logits_digest(logits(arg, row), ek_model_config(model)->vocab_size);
}

static void start(ek_server_opts so)
{
    pause_us = 0;
    hang = false;
    model = tiny_model();
    real = ek_executor_cpu(model);
    ek_executor x = real;
    x.step = step;
    x.logits = logits;
    x.digest = digest;
    ek_engine_opts eo = ek_engine_defaults();
    eo.max_requests = 4;
    assert_int_equal(ek_engine_open_on(&engine, &x, &eo), EK_OK);
    so.http.max_body = 1 << 20;
    so.model = model;
    so.model_dir = "models/pocket";
    so.model_name = "tiny";
    server = start_server(engine, &so);
}

static void stop(void)
{
    stop_server();
    ek_engine_close(engine);
    ek_model_close(model);
}

static int setup(void **state)
{
    (void)state;
    ek_log_set(EK_LOG_ERROR);
    break_after = -1;
    return 0;
}

static ek_buf ask(const char *method, const char *path, const char *headers, const char *body)
{
    char all[1024];
    snprintf(all, sizeof all, "host: x\r\n%s", headers);
    return ask_server(method, path, all, body);
}

static void check(const char *method, const char *path, const char *headers, const char *body, int status,
                  const char *says)
{
    char all[1024];
    snprintf(all, sizeof all, "host: x\r\n%s", headers);
    check_server(method, path, all, body, status, says);
}

static bool is(const char *path, const char *says)
{
    ek_buf r = ask("GET", path, "", "");
    bool found = strstr(ek_buf_text(&r), says) != NULL;
    ek_buf_fini(&r);
    return found;
}

static void wait_until(const char *path, const char *says)
{
    for (double begin = ek_now(); !is(path, says); usleep(20000))
        if (ek_now() - begin > 10) {
            ek_buf r = ask("GET", path, "", "");
            fail_msg("%s never says %s but %s", path, says, ek_buf_text(&r));
        }
}

static void keys_are_compared_whole(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[100];
    snprintf(path, sizeof path, "%s/keys", dir);
    put_text(dir, "keys", "# ours\n\n sk-one \nsk-two\r\n");
    ek_keys *k;
    assert_int_equal(ek_keys_open(&k, "given, other", path), EK_OK);
    assert_int_equal(ek_keys_count(k), 4);
    static const char *const good[] = {"given", "other", "sk-one", "sk-two"};
    static const char *const bad[] = {"", "sk-on", "sk-one ", "sk-onf", "SK-ONE", "# ours", "given,other"};
    for (size_t i = 0; i < 4; i++) assert_true(ek_keys_allow(k, good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(ek_keys_allow(k, bad[i]));
    assert_false(ek_keys_allow(k, NULL));
    unlink(path);
    assert_int_equal(ek_keys_reload(k), EK_ENOTFOUND); /* everything stays */
    assert_true(ek_keys_allow(k, "sk-one"));
    ek_keys_close(k);
    assert_int_equal(ek_keys_open(&k, NULL, path), EK_ENOTFOUND);
    assert_int_equal(ek_keys_open(&k, "a b", NULL), EK_EINVAL);
    assert_int_equal(ek_keys_open(&k, "", NULL), EK_EINVAL);
    remove_dir(dir);
}

static void only_with_a_key(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[100];
    snprintf(path, sizeof path, "%s/keys", dir);
    put_text(dir, "keys", "old\n");
    start((ek_server_opts){.api_keys = "given", .api_key_file = path});
    check("POST", CHAT, "", SMALL, 401, "invalid_api_key");
    check("POST", CHAT, "authorization: Bearer wrong\r\n", SMALL, 401, "www-authenticate: Bearer");
    check("POST", CHAT, "authorization: Basic given\r\n", SMALL, 401, "\"error\"");
    check("POST", CHAT, "authorization: bearer given\r\n", SMALL, 200, "chat.completion");
    check("POST", CHAT, "x-api-key: old\r\n", SMALL, 200, "chat.completion");
    check("GET", "/v1/models", "", "", 401, "invalid_api_key");
    check("GET", "/v1/models/tiny", "x-api-key: given\r\n", "", 200, "\"context_length\":512");
    check("GET", "/health", "", "", 200, "ok");
    check("GET", "/metrics", "", "", 200, "evenkeel_info");
    put_text(dir, "keys", "new\n");
    kill(getpid(), SIGHUP);
    usleep(200000);
    check("POST", CHAT, "x-api-key: old\r\n", SMALL, 401, "\"error\"");
    check("POST", CHAT, "x-api-key: new\r\n", SMALL, 200, "chat.completion");
    unlink(path);
    kill(getpid(), SIGHUP); /* a file that is gone changes nothing */
    usleep(200000);
    check("POST", CHAT, "x-api-key: new\r\n", SMALL, 200, "chat.completion");
    remove_dir(dir);
    stop();
}

static void pages_of_known_origins(void **state)
{
    (void)state;
    assert_true(ek_cors_allows("*", "https://a.b"));
    assert_true(ek_cors_allows("https://x, https://A.b", "https://a.B"));
    assert_false(ek_cors_allows("https://a.b.c,https://a", "https://a.b"));
    assert_false(ek_cors_allows("", "null"));
    static const char *const local[] = {"http://localhost", "http://localhost:3000", "https://127.0.0.1:1",
                                        "http://[::1]:80"};
    static const char *const other[] = {"http://localhost.evil.org",
                                        "http://localhost:80.evil.org",
                                        "http://127.0.0.1.evil",
                                        "file://localhost",
                                        "null",
                                        "http://localhost:80/"};
    for (size_t i = 0; i < 4; i++) assert_true(ek_cors_allows("https://x,localhost", local[i]));
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) assert_false(ek_cors_allows("localhost", other[i]));

    start((ek_server_opts){.cors_origins = "https://page.org", .api_keys = "k"});
    static const char asks[] = "origin: https://page.org\r\naccess-control-request-method: POST\r\n"
                               "access-control-request-headers: x-stainless-os\r\n";
    check("OPTIONS", CHAT, asks, "", 204, "access-control-allow-origin: https://page.org");
    check("OPTIONS", CHAT, asks, "", 204, "access-control-allow-headers: x-stainless-os");
    check("POST", CHAT, "x-api-key: k\r\norigin: https://page.org\r\n", SMALL, 200, "allow-origin: https://page.org");
    check("POST", CHAT, "origin: https://page.org\r\n", SMALL, 401, "allow-origin: https://page.org");
    ek_buf r = ask("OPTIONS", CHAT, "origin: https://evil.org\r\naccess-control-request-method: POST\r\n", "");
    assert_null(strstr(r.data, "access-control"));
    ek_buf_fini(&r);
    check("OPTIONS", CHAT, "", "", 405, "allow: POST");
    stop();
}

static void ready_after_two_equal_canaries(void **state)
{
    (void)state;
    start((ek_server_opts){.limits.stall_timeout = 0.5});
    wait_until("/ready", "\"status\":\"ok\"");
    check("GET", "/metrics", "", "", 200, "evenkeel_ready 1");
    int fd = post_to(ek_server_port(server), CHAT, SMALL);
    hang = true;
    int other = post_to(ek_server_port(server), CHAT, SMALL);
    wait_until("/ready", "\"status\":\"stalled\""); /* the watchdog */
    assert_true(is("/ready", "HTTP/1.1 503 ") && is("/health", "HTTP/1.1 503 "));
    hang = false;
    wait_until("/ready", "\"status\":\"ok\"");
    check("GET", "/metrics", "", "", 200, "evenkeel_stalls_total 1");
    ek_buf a = reply_of(fd), b = reply_of(other);
    assert_memory_equal(a.data, "HTTP/1.1 200 ", 13);
    assert_memory_equal(b.data, "HTTP/1.1 200 ", 13);
    ek_buf_fini(&a);
    ek_buf_fini(&b);
    stop();
}

static void not_ready_with_other_logits(void **state)
{
    (void)state;
    break_after = 5; /* four draws of the first canary, one of the second */
    start((ek_server_opts){0});
    wait_until("/ready", "\"status\":\"wrong\"");
    assert_true(is("/ready", "HTTP/1.1 503 ") && is("/health", "HTTP/1.1 503 "));
    check("GET", "/metrics", "", "", 200, "evenkeel_canary_mismatches_total 1");
    stop();
    break_after = -1;
}

static void a_request_that_takes_too_long(void **state)
{
    (void)state;
    start((ek_server_opts){.limits.request_timeout = 0.4});
    pause_us = 20000;
    char body[300];
    snprintf(body, sizeof body, LONG, "");
    check("POST", CHAT, "", body, 504, "took longer than");
    snprintf(body, sizeof body, LONG, ",\"stream\":true");
    check("POST", CHAT, "", body, 200, "took longer than");
    wait_until("/health", "\"running\":0");
    check("GET", "/metrics", "", "", 200, "evenkeel_requests_total{outcome=\"timeout\"} 2");
    stop();
}

static void the_end_of_the_drain_timeout(void **state)
{
    (void)state;
    start((ek_server_opts){.limits.drain_timeout = 0.5});
    wait_until("/ready", "\"status\":\"ok\"");
    pause_us = 20000;
    char body[300];
    snprintf(body, sizeof body, LONG, "");
    int fd = post_to(ek_server_port(server), CHAT, body);
    usleep(100000);
    double begin = ek_now();
    stop();
    assert_in_range((int)((ek_now() - begin) * 10), 4, 30);
    ek_buf r = reply_of(fd);
    assert_memory_equal(r.data, "HTTP/1.1 503 ", 13);
    assert_non_null(strstr(r.data, "shutting down"));
    ek_buf_fini(&r);
}

/* Every line of the metrics is a comment, or a name, perhaps labels, and a number; and each has its type before it. */
static void metrics_can_be_read(void **state)
{
    (void)state;
    start((ek_server_opts){0});
    check("POST", CHAT, "", SMALL, 200, "chat.completion");
    wait_until("/ready", "\"status\":\"ok\"");
    ek_buf r = ask("GET", "/metrics", "", "");
    assert_non_null(strstr(r.data, "content-type: text/plain; version=0.0.4"));
    static const char *const has[] = {
        "\nevenkeel_requests_total{outcome=\"done\"} 1\n",
        "\nevenkeel_reply_tokens_total ",
        "\nevenkeel_first_token_seconds_count 1\n",
        "\nevenkeel_token_gap_seconds_count 1\n",
        "\nevenkeel_request_seconds_count 1\n",
        "\nevenkeel_queue_seconds_bucket{le=\"+Inf\"} 3\n",
        "\nevenkeel_step_seconds_count ",
        "\nevenkeel_step_requests_bucket{le=\"1\"} ",
        "\nevenkeel_cached_tokens_total ",
        "\nevenkeel_drafted_tokens_total ",
        "\nevenkeel_accepted_tokens_total ",
        "\nvllm:num_requests_running{model_name=\"tiny\"} 0\n",
        "\nvllm:num_requests_waiting{model_name=\"tiny\"} 0\n",
        "\nvllm:kv_cache_usage_perc{model_name=\"tiny\"} ",
        "\nvllm:gpu_cache_usage_perc{model_name=\"tiny\"} ",
        "\nvllm:prefix_cache_queries_total{model_name=\"tiny\"} ",
        "\nvllm:prefix_cache_hits_total{model_name=\"tiny\"} ",
        "\nvllm:gpu_prefix_cache_queries_total{model_name=\"tiny\"} ",
        "\nvllm:gpu_prefix_cache_hits_total{model_name=\"tiny\"} ",
        "\nvllm:gpu_prefix_cache_hit_rate{model_name=\"tiny\"} 0.",
        "\nvllm:cache_config_info{block_size=\"64\",num_gpu_blocks=\"",
        "\nevenkeel_http_responses_total{code=\"200\"} ",
    };
    for (size_t i = 0; i < sizeof has / sizeof *has; i++)
        if (!strstr(r.data, has[i])) fail_msg("no %s in %s", has[i], r.data);
    char type[128] = "";
    for (char *line = strstr(r.data, "\r\n\r\n") + 4, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        if (sscanf(line, "# TYPE %127s", type) == 1 || !strncmp(line, "# HELP ", 7)) continue;
        char *space = strrchr(line, ' '), *rest;
        assert_non_null(space);
        strtod(space + 1, &rest);
        if (*rest || rest == space + 1 || strncmp(line, type, strlen(type)) != 0) fail_msg("line: %s", line);
    }
    ek_buf_fini(&r);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_compared_whole),      cmocka_unit_test(only_with_a_key),
        cmocka_unit_test(pages_of_known_origins),       cmocka_unit_test(ready_after_two_equal_canaries),
        cmocka_unit_test(not_ready_with_other_logits),  cmocka_unit_test(a_request_that_takes_too_long),
        cmocka_unit_test(the_end_of_the_drain_timeout), cmocka_unit_test(metrics_can_be_read),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
