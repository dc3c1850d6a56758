/* What requests take is counted before it is taken: at each allocation of the server, what it has taken since the
 * request began is within what its request memory says. The allocator of this program compares the two. */
/* tier: all */
#include "helper.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "serve/server_state.h"

#define CHAT      "/v1/chat/completions"
#define RESPONSES "/v1/responses"

enum { UNCOUNTED = 400 << 10 }; /* bytes: buffers of connections, what the engine and small requests take */

static ek_model *model;
static ek_engine *engine;

/* --- the allocator --- */

static _Atomic(ek_request_memory *) watched; /* while a request is measured */
static atomic_long live, max_over, max_live; /* bytes since then; beyond what was counted; at all */

#ifdef EK_SANITIZED
static void leave_out(void)
{
}
#else
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

static _Thread_local bool exempt; /* the client's thread */

static void leave_out(void)
{
    exempt = true;
}

static void raise_to(atomic_long *max, long x)
{
    long was = atomic_load(max);
    while (x > was && !atomic_compare_exchange_weak(max, &was, x)) continue;
}

static void add(long n)
{
    ek_request_memory *m = exempt ? NULL : atomic_load(&watched);
    if (!m) return;
    long now = atomic_fetch_add(&live, n) + n;
    raise_to(&max_live, now);
    raise_to(&max_over, now - (long)atomic_load(&m->used));
}

void *malloc(size_t n)
{
    void *p = __libc_malloc(n);
    if (p) add((long)malloc_usable_size(p));
    return p;
}

void *calloc(size_t n, size_t size)
{
    void *p = __libc_calloc(n, size);
    if (p) add((long)malloc_usable_size(p));
    return p;
}

void *realloc(void *p, size_t n)
{
    long before = p ? (long)malloc_usable_size(p) : 0;
    void *q = __libc_realloc(p, n);
    if (q) add((long)malloc_usable_size(q) - before);
    return q;
}

void free(void *p)
{
    if (p) add(-(long)malloc_usable_size(p));
    __libc_free(p);
}
#endif

/* --- requests --- */

static ek_server *start(ek_server_limits limits)
{
    ek_server_opts so = {.http.max_body = 32 << 20,
                         .limits = limits,
                         .model = model,
                         .model_dir = "models/pocket",
                         .model_name = "tiny"};
    return start_server(engine, &so);
}

static int open_engine(void **state)
{
    (void)state;
    leave_out();
    open_tiny_engine(&model, &engine, 4, 64);
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    ek_engine_close(engine);
    ek_model_close(model);
    return 0;
}

/* The engine of a server that ended takes no more requests. */
static void stop(void)
{
    stop_server();
    close_engine(NULL);
    open_engine(NULL);
}

static ek_buf reply_to(const ek_server *s, const char *path, const ek_buf *body)
{
    return reply_of(post_to(ek_server_port(s), path, ek_buf_text(body)));
}

static void expect(const ek_server *s, const char *path, const ek_buf *body, const char *status, const char *says)
{
    ek_buf r = reply_to(s, path, body);
    if (!r.data || strncmp(r.data + 9, status, 3) != 0 || !strstr(r.data, says))
        fail_msg("not %s with \"%s\": %.600s", status, says, ek_buf_text(&r));
    ek_buf_fini(&r);
}

/* Waits until no request holds memory. */
static void await_idle(ek_server *s)
{
    for (int i = 0; atomic_load(&s->memory.used) > 0; i++) {
        if (i > 10000) fail_msg("%zu bytes are still held", (size_t)atomic_load(&s->memory.used));
        usleep(2000);
    }
}

/* Fails if a request took more than was counted. Its body is mapped, or small; its reply is counted until it is
 * written, not until the client has it. stored: bytes that stay behind in the store of responses. */
static void measure(ek_server *s, const char *name, const char *path, const ek_buf *body, size_t stored)
{
    await_idle(s);
    atomic_store(&live, 0);
    atomic_store(&max_live, 0);
    atomic_store(&max_over, 0);
    atomic_store(&watched, &s->memory);
    ek_buf r = reply_to(s, path, body);
    await_idle(s);
    atomic_store(&watched, NULL);
    long over = atomic_load(&max_over), allowed = UNCOUNTED + 2 * (long)r.len + (long)stored;
    printf("measured: %s: body %.1f MB, reply %.1f MB, taken %.1f MB, not counted %.1f MB\n", name,
           (double)body->len / 1e6, (double)r.len / 1e6, (double)atomic_load(&max_live) / 1e6, (double)over / 1e6);
    if (strncmp(r.data + 9, "200", 3) && !strstr(r.data, "prompt is too long"))
        fail_msg("%s: %.600s", name, ek_buf_text(&r));
    if (over > allowed)
        fail_msg("%s: %ld bytes were taken that were not counted, %ld are allowed", name, over, allowed);
    ek_buf_fini(&r);
}

/* A body of n copies of part between head and tail. */
static ek_buf body_of(const char *head, const char *part, int n, const char *tail)
{
    ek_buf b = {0};
    ek_buf_str(&b, head);
    for (int i = 0; i < n; i++) ek_buf_str(&b, part);
    ek_buf_str(&b, tail);
    return b;
}

#define CHAT_CALL                                                                                                              \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":" \
    "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":["
#define CHAT_CALL_END "0]}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"r\"}]}"
#define ITEM_CALL \
    "{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{\\\"a\\\":["
#define ITEM_CALL_END "0]}\"}]}"
#define CALLS         "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":["
#define USER          "{\"messages\":[{\"role\":\"user\",\"content\":\""

#define SHORT          "{\"max_output_tokens\":1,"
#define ITEM_MORE      SHORT "\"input\":[{\"role\":\"user\",\"content\":\"x\",\"more\":"
#define ONE_CALL(more) "{\"id\":\"c\",\"function\":{\"name\":\"f\"" more "}}"
#define SAID           "{\"role\":\"assistant\",\"content\":\"x\"}"
#define CALLED         "{\"role\":\"assistant\",\"tool_calls\":[" ONE_CALL(",\"arguments\":\"\"") "]}"
#define RESULT         "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"x\"}"
#define ITEM           "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"\"}"
#define RESULT_ITEM    "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"x\"}"
#define MESSAGE        "{\"role\":\"user\",\"content\":\"x\"}"

static void everything_is_counted(void **state)
{
    (void)state;
#ifdef EK_SANITIZED
    skip(); /* the allocator is the sanitizer's */
#endif
    static const struct {
        const char *name, *path, *head, *part;
        int n;
        const char *tail;
    } cases[] = {
        {"a call's arguments", CHAT, CHAT_CALL, "{},", 100000, CHAT_CALL_END},
        {"members of arguments", CHAT, CHAT_CALL, "{\\\"k\\\":1},", 100000, CHAT_CALL_END},
        {"damaged arguments", CHAT, CHAT_CALL, "'a',", 100000, CHAT_CALL_END},
        {"damaged members", CHAT, CHAT_CALL, "{k:''},", 100000, CHAT_CALL_END},
        {"an item's arguments", RESPONSES, ITEM_CALL, "[[]],", 100000, ITEM_CALL_END},
        {"many calls", CHAT, CALLS, ONE_CALL(",\"arguments\":\"{}\"") ",", 50000, ONE_CALL("") "]}]}"},
        {"calls without arguments", CHAT, CALLS, ONE_CALL("") ",", 50000, ONE_CALL("") "]}]}"},
        {"the assistant's messages", CHAT, "{\"messages\":[", SAID ",", 50000, SAID "]}"},
        {"calls and results", CHAT, "{\"messages\":[", CALLED "," RESULT ",", 30000, SAID "]}"},
        {"items of calls and results", RESPONSES, SHORT "\"input\":[", ITEM "," RESULT_ITEM ",", 30000, SAID "]}"},
        {"messages", CHAT, "{\"messages\":[", MESSAGE ",", 50000, MESSAGE "]}"},
        {"text", CHAT, USER, "a", 1000000, "\"}]}"},
        {"ill-formed text", CHAT, USER, "\xff", 1000000, "\"}]}"},
        {"control characters", RESPONSES, "{\"input\":\"", "\x01", 1000000, "\"}"},
        {"what a response repeats", RESPONSES, SHORT "\"store\":false,\"input\":\"x\",\"user\":\"", "a", 500000, "\"}"},
    };
    ek_server *s = start((ek_server_limits){.request_memory = (size_t)1 << 30});
    ek_buf small = body_of(USER, "x", 1, "\"}],\"max_tokens\":1}");
    ek_buf first = reply_to(s, CHAT, &small); /* also takes what the engine keeps */
    measure(s, "small", CHAT, &small, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_buf body = body_of(cases[i].head, cases[i].part, cases[i].n, cases[i].tail);
        measure(s, cases[i].name, cases[i].path, &body, 0);
        ek_buf_fini(&body);
    }
    ek_buf stored = body_of(ITEM_MORE "\"", "a", 4300000, "\"}]}");
    measure(s, "members that nobody reads", RESPONSES, &stored, stored.len);
    ek_buf_fini(&stored);
    ek_buf_fini(&first);
    ek_buf_fini(&small);
    stop();
}

/* A body that continues the stored response to another one. */
static ek_buf continuing(const ek_server *s, const ek_buf *first, const char *input)
{
    ek_buf r = reply_to(s, RESPONSES, first), b = {0};
    const char *id = r.data ? strstr(r.data, "\"id\":\"resp_") : NULL;
    if (!id) fail_msg("no response: %.600s", ek_buf_text(&r));
    ek_buf_fmt(&b, SHORT "\"previous_response_id\":%.*s,\"input\":%s}", (int)strcspn(id + 6, "\"") + 2, id + 5, input);
    ek_buf_fini(&r);
    return b;
}

/* What is stored of an item: parts without text are five values and keys each, and no token. */
#define PARTS      "{\"role\":\"user\",\"content\":["
#define EMPTY_PART "{\"type\":\"input_text\",\"text\":\"\"}"
#define TEXT_PART  "{\"type\":\"input_text\",\"text\":\"x\"}"

/* A short body may continue a long conversation. */
static void what_is_continued_is_counted(void **state)
{
    (void)state;
#ifdef EK_SANITIZED
    skip();
#endif
    ek_server *s = start((ek_server_limits){.request_memory = (size_t)1 << 30});
    ek_buf first = body_of(SHORT "\"input\":[" PARTS, EMPTY_PART ",", 20000, TEXT_PART "]}]}"),
           next = continuing(s, &first, "\"y\"");
    measure(s, "a continued response", RESPONSES, &next, 0);
    ek_buf_fini(&first);
    ek_buf_fini(&next);
    stop();
}

static void what_is_continued_is_refused(void **state)
{
    (void)state;
    ek_buf large = body_of(PARTS, EMPTY_PART ",", 7999, TEXT_PART "]}");
    ek_buf first = body_of(SHORT "\"input\":[", large.data, 1, "]}");
    ek_buf many = body_of(SHORT "\"input\":[", MESSAGE ",", 30, MESSAGE "]}");
    ek_buf inline_large = body_of("[", large.data, 1, "]");
    ek_server *s = start((ek_server_limits){.request_memory = 64 << 20, .max_json_values = 60000, .max_messages = 32});
    ek_buf values = continuing(s, &first, inline_large.data), items = continuing(s, &many, "[" MESSAGE "," MESSAGE "]");
    expect(s, RESPONSES, &values, "413", "previous_response_id: the request has 800");
    expect(s, RESPONSES, &items, "413",
           "items, at most 32 are allowed\",\"type\":\"invalid_request_error\",\"param\":\"previous_response_id\"");
    stop();
    s = start((ek_server_limits){.request_memory = 12 << 20});
    ek_buf both = continuing(s, &first, inline_large.data), next = continuing(s, &first, "\"y\"");
    expect(s, RESPONSES, &both, "413", "previous_response_id: the request may need ");
    assert_int_equal(ek_request_memory_take(&s->memory, 0, 6 << 20), EK_OK); /* somebody else holds it */
    expect(s, RESPONSES, &next, "503", "other requests hold 6.0 of 12.0 MiB, try again later");
    ek_request_memory_give(&s->memory, 6 << 20);
    expect(s, RESPONSES, &next, "200", "");
    await_idle(s);
    ek_buf *all[] = {&large, &first, &many, &inline_large, &values, &items, &both, &next};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ek_buf_fini(all[i]);
    stop();
}

/* What only the reply needs is counted before the reply is begun: 60 times 480 log-probabilities. */
static void log_probabilities_are_counted(void **state)
{
    (void)state;
    ek_buf many = body_of("{\"n\":60,\"max_tokens\":1,\"echo\":true,\"logprobs\":0,\"prompt\":\"", " the", 480, "\"}");
    ek_buf few = body_of("{\"n\":60,\"max_tokens\":1,\"echo\":true,\"logprobs\":0,\"prompt\":\"", " the", 2, "\"}");
    ek_server *s = start((ek_server_limits){.request_memory = 8 << 20});
    expect(s, "/v1/completions", &many, "413", "the request may need ");
    expect(s, "/v1/completions", &few, "200", "");
    await_idle(s);
    ek_buf_fini(&many);
    ek_buf_fini(&few);
    stop();
}

/* Arguments have a body's limits, and are refused in the same words. */
static void arguments_are_refused(void **state)
{
    (void)state;
    ek_buf chat = body_of(CHAT_CALL, "{},", 100000, CHAT_CALL_END);
    ek_buf item = body_of(ITEM_CALL, "{},", 100000, ITEM_CALL_END);
    ek_server *s = start((ek_server_limits){.request_memory = 30 << 20});
    expect(s, CHAT, &chat, "413", "messages[1]: the arguments of tool_calls[0]: the request may need ");
    expect(s, CHAT, &chat, "413",
           "all requests together may take 30.0 MiB\",\"type\":\"invalid_request_error\",\"param\":\"messages\"");
    expect(s, RESPONSES, &item, "413", "input[0]: arguments: the request may need ");
    await_idle(s);
    stop();
    s = start((ek_server_limits){.request_memory = 60 << 20, .max_json_values = 10000});
    expect(s, CHAT, &chat, "413", "the arguments of tool_calls[0]: the request has 1000");
    expect(s, RESPONSES, &item, "413", "JSON values and keys, at most 10000 are allowed");
    stop();
    s = start((ek_server_limits){.request_memory = 60 << 20});
    expect(s, CHAT, &chat, "400", "context_length_exceeded");
    assert_int_equal(ek_request_memory_take(&s->memory, 0, 30 << 20), EK_OK); /* somebody else holds it */
    expect(s, CHAT, &chat, "503",
           "other requests hold 30.0 of 60.0 MiB, try again later\",\"type\":\"server_error\",\"param\":null");
    ek_request_memory_give(&s->memory, 30 << 20);
    expect(s, CHAT, &chat, "400", "context_length_exceeded");
    await_idle(s);
    ek_buf_fini(&chat);
    ek_buf_fini(&item);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_counted),         cmocka_unit_test(arguments_are_refused),
        cmocka_unit_test(log_probabilities_are_counted), cmocka_unit_test(what_is_continued_is_counted),
        cmocka_unit_test(what_is_continued_is_refused),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
