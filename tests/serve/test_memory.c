/* Memory that runs out at each allocation of a request, one after the other: the process lives, the client gets its
 * answer or 503, and the next request is answered as always. The allocator of this program says that the system has no
 * more until the reserve was given back to it. */
#include "helper.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

enum { PLACES = 50 }; /* at which each kind of request runs out */

static ek_server *server;

#ifdef EK_SANITIZED
static void every_place_can_run_out(void **state)
{
    (void)state;
    skip(); /* the allocator is the sanitizer's */
}
#else

/* --- the allocator --- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static _Thread_local bool exempt; /* the client's thread */
static atomic_bool armed;
static atomic_long n_calls, fails_from;
static atomic_size_t spent_before;

static bool refuses(void)
{
    if (!atomic_load(&armed) || exempt) return false;
    long n = atomic_fetch_add(&n_calls, 1);
    return n >= atomic_load(&fails_from) && ek_reserve_times_spent() == atomic_load(&spent_before);
}

void *malloc(size_t n)
{
    if (!refuses()) return __libc_malloc(n);
    errno = ENOMEM;
    return NULL;
}

void *calloc(size_t n, size_t size)
{
    if (!refuses()) return __libc_calloc(n, size);
    errno = ENOMEM;
    return NULL;
}

void *realloc(void *p, size_t n)
{
    if (!refuses()) return __libc_realloc(p, n);
    errno = ENOMEM;
    return NULL;
}

/* --- requests --- */

#define SCHEMA \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^[a-z]{2,9}$\"},\"b\":{\"enum\":[1,\"x\"]}},\"required\":[\"a\"]}"
#define TOOLS \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":" SCHEMA "}}]"

static const struct {
    const char *path, *body;
} requests[] = {
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"system\",\"content\":\"be short\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]},"
     "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\","
     "\"arguments\":\"{\\\"a\\\":\\\"bc\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"ok\"}],\"temperature\":0,"
     "\"max_tokens\":3,\"stream\":true,\"stop\":[\"zq\"],\"logprobs\":true,\"top_logprobs\":2," TOOLS "}"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"temperature\":0,\"max_tokens\":4,\"n\":2,\"response_format\":{\"type\":"
     "\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":" SCHEMA "}}}"},
    {"/v1/completions", "{\"prompt\":[\"a b\",\"c\"],\"temperature\":0,\"max_tokens\":2,\"echo\":true,\"logprobs\":1}"},
    {"/v1/responses", "{\"input\":\"hi\",\"temperature\":0,\"max_output_tokens\":2,\"stream\":true}"},
    {"/v1/messages",
     "{\"max_tokens\":2,\"temperature\":0,\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"a\\qb\"}]}"},
    {"/api/chat",
     "{\"model\":\"m\",\"options\":{\"temperature\":0,\"num_predict\":3,\"stop\":[\"zq\"]},\"format\":" SCHEMA
     ",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
     "\"arguments\":{\"a\":\"bc\"}}}]},{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"ok\"}],\"logprobs\":true}"},
    {"/api/generate",
     "{\"model\":\"m\",\"prompt\":\"a b\",\"system\":\"c\",\"stream\":false,\"options\":{\"temperature\":0,\"num_predict\":2}}"},
    {"/api/chat",
     "{\"model\":\"m\",\"_debug_render_only\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"},
    {"/api/show", "{\"model\":\"m\"}"},
    {"/v1/tokenize", "{\"prompt\":\"a b c\"}"},
};
enum { N_REQUESTS = sizeof requests / sizeof *requests };

static ek_buf ask(size_t i)
{
    return reply_of(post_to(ek_server_port(server), requests[i].path, requests[i].body));
}

static int status_of(const ek_buf *b)
{
    return b->len > 12 ? atoi(b->data + 9) : 0;
}

static size_t times(const ek_buf *b, const char *part)
{
    size_t n = 0;
    for (const char *at = b->data; (at = strstr(at, part)); at++) n++;
    return n;
}

static size_t marks(const char *s, size_t n)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) found += s[i] == '{' || s[i] == '"';
    return found;
}

/* The braces and quotes of a reply, without those that differ from request to request: ids and times have none, but
 * the lines of Ollama's streams are divided by time, so that the frames around their texts do not count. */
static size_t essence(const ek_buf *b)
{
    static const char line[] =
        "{\"model\":\"m\",\"created_at\":\"\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},"
        "\"done\":false}",
                      logprobs[] = "\"logprobs\":";
    const size_t n = marks(b->data, b->len), lines = times(b, "\"done\":false");
    return lines == 0
               ? n
               : n - lines * marks(line, sizeof line - 1) - times(b, logprobs) * marks(logprobs, sizeof logprobs - 1);
}

static void every_place_can_run_out(void **state)
{
    (void)state;
    exempt = true;
    long total = 0, n_served = 0, n_refused = 0;
    for (size_t i = 0; i < N_REQUESTS; i++) {
        ek_buf first = ask(i), right = ask(i); /* the second one finds tables and caches made */
        assert_int_equal(status_of(&first), 200);
        assert_int_equal(status_of(&right), 200);
        ek_buf_fini(&first);
        atomic_store(&n_calls, 0);
        atomic_store(&fails_from, 1L << 40);
        atomic_store(&armed, true);
        ek_buf counted = ask(i);
        atomic_store(&armed, false);
        ek_buf_fini(&counted);
        long calls = atomic_load(&n_calls);
        total += calls;
        assert_true(calls > 10);
        for (long k = 0; k < PLACES; k++) {
            atomic_store(&n_calls, 0);
            atomic_store(&fails_from, calls * k / PLACES);
            atomic_store(&spent_before, ek_reserve_times_spent());
            atomic_store(&armed, true);
            ek_buf b = ask(i);
            atomic_store(&armed, false);
            int status = status_of(&b);
            if (status != 200 && status != 503) fail_msg("%s, place %ld: %s", requests[i].path, k, ek_buf_text(&b));
            n_served += status == 200;
            n_refused += status == 503;
            ek_buf_fini(&b);
            b = ask(i);
            if (status_of(&b) != 200 || essence(&b) != essence(&right))
                fail_msg("%s, after place %ld: %s\n%s", requests[i].path, k, ek_buf_text(&b), ek_buf_text(&right));
            ek_buf_fini(&b);
        }
        ek_buf_fini(&right);
    }
    printf("measured: %ld allocations of %d requests; %ld served, %ld refused, reserve spent %zu times\n", total,
           N_REQUESTS, n_served, n_refused, ek_reserve_times_spent());
    assert_true(n_served > 0 && n_refused > N_REQUESTS && ek_reserve_times_spent() > PLACES * N_REQUESTS / 2);
    assert_false(ek_reserve_is_spent() && !ek_reserve_fill(16 << 20));
}
#endif

static int open_all(void **state)
{
    (void)state;
    server = start_tiny(4, 4, (ek_server_opts){0});
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_place_can_run_out)};
    return cmocka_run_group_tests(tests, open_all, close_tiny);
}
