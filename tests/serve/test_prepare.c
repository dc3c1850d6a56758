/* Bodies that once stopped the server for seconds or minutes: prompts are made beside the event loop, in linear time,
 * and what cannot be served is refused before memory is taken. */
/* tier: all */
/* runs: alone */
#include "helper.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "serve/store/response_store.h"
#include "serve/server_state.h"

#ifdef EK_SANITIZED
enum { SLOW = 20 };
#else
enum { SLOW = 1 };
#endif

#define CHAT  "/v1/chat/completions"
#define SMALL "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"temperature\":0,\"max_tokens\":2}"

static ek_model *model;
static ek_engine *engine;

static int open_engine(void **state)
{
    (void)state;
    open_tiny_engine(&model, &engine, 4, 2);
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    ek_engine_close(engine);
    ek_model_close(model);
    return 0;
}

static ek_server *start(ek_server_limits limits)
{
    ek_server_opts so = {.http.max_body = 32 << 20,
                         .limits = limits,
                         .model = model,
                         .model_dir = "models/pocket",
                         .model_name = "tiny"};
    return start_server(engine, &so);
}

/* The engine of a server that ended takes no more requests. */
static void restart(void)
{
    close_engine(NULL);
    open_engine(NULL);
}

/* A body of n copies of part (%d: its number) between head and tail. */
static ek_buf body_of(const char *head, const char *part, int n, const char *tail)
{
    ek_buf b = {0};
    ek_buf_str(&b, head);
    for (int i = 0; i < n; i++) {
        if (i) ek_buf_char(&b, ',');
        const char *mark = strstr(part, "%d");
        if (!mark) {
            ek_buf_str(&b, part);
            continue;
        }
        ek_buf_add(&b, part, (size_t)(mark - part));
        ek_buf_fmt(&b, "%d%s", i, mark + 2);
    }
    ek_buf_str(&b, tail);
    return b;
}

#define ASK "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}"

static ek_buf many_results(int n)
{
    ek_buf b = body_of(ASK ",{\"role\":\"assistant\",\"tool_calls\":[",
                       "{\"id\":\"c%d\",\"function\":{\"name\":\"f\",\"arguments\":{}}}", n, "]},");
    ek_buf results = body_of("", "{\"role\":\"tool\",\"tool_call_id\":\"c%d\",\"content\":\"r\"}", n, "]}");
    ek_buf_add(&b, results.data, results.len);
    ek_buf_fini(&results);
    return b;
}

static ek_buf many_keys(int n)
{
    return body_of(ASK "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
                       "\"object\",\"properties\":{",
                   "\"k%d\":{}", n, "}}}}]}");
}

static void check_status(int fd, const char *status, const char *says)
{
    ek_buf r = reply_of(fd);
    if (!r.data || strncmp(r.data + 9, status, strlen(status)) != 0 || (says && !strstr(r.data, says)))
        fail_msg("not %s with \"%s\": %.600s", status, says ? says : "", ek_buf_text(&r));
    ek_buf_fini(&r);
}

/* While the reply to fd is on its way, others are served. */
static void check_others(const ek_server *s, int fd, const char *status, const char *says)
{
    double begin = ek_now();
    char byte;
    int served = 0;
    while (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
        check_status(post_to(ek_server_port(s), CHAT, SMALL), "200", NULL);
        served++;
        if (ek_now() - begin > 30 * SLOW) fail_msg("no reply after %.0f s", ek_now() - begin);
    }
    check_status(fd, status, says);
    assert_true(served > 0 || ek_now() - begin < 1 * SLOW);
}

/* The longest turn of the loop in seconds while large bodies arrive. */
static double longest_turn(void)
{
    ek_server *s = start((ek_server_limits){0});
    const struct {
        ek_buf body;
        const char *status, *says;
    } cases[] = {
        {many_results(20000), "400", "context_length_exceeded"},
        {many_keys(200000), "400", "context_length_exceeded"},
        {many_keys(1200000), "413", "JSON values"},
        {body_of(ASK "],\"ignored\":[", "{}", 9000000, "]}"), "413", "JSON values"},
        {body_of(ASK ",{\"role\":\"assistant\",\"tool_responses\":[", "0", 800000, "]}]}"), "400", "context_length"},
        {body_of("{\"messages\":[", "{\"role\":\"user\",\"content\":\"x\"}", 70000, "]}"), "413", "70000 objects"},
        {body_of(ASK ",{\"role\":\"user\",\"content\":\"", "some words", 2500000, "\"}]}"), "400", "context_length"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_others(s, post_to(ek_server_port(s), CHAT, cases[i].body.data), cases[i].status, cases[i].says);
        ek_buf_fini((ek_buf *)&cases[i].body);
    }
    double turn = stop_server();
    restart();
    return turn;
}

/* Another program on the machine may hold a turn up, but not in every try. */
static void nothing_stops_the_loop(void **state)
{
    (void)state;
    double least = longest_turn();
    for (int tries = 1; tries < 4 && least >= 5e-3 * SLOW; tries++) {
        double turn = longest_turn();
        if (turn < least) least = turn;
    }
    print_message("measured: longest turn of the event loop %.2f ms\n", least * 1e3);
    assert_true(least < 5e-3 * SLOW);
}

/* Waits until no request holds memory. */
static void check_all_given_back(ek_server *s)
{
    double begin = ek_now();
    while (atomic_load(&s->memory.used) > 0) {
        if (ek_now() - begin > 10 * SLOW) fail_msg("%zu bytes are still held", (size_t)atomic_load(&s->memory.used));
        usleep(2000);
    }
}

static void a_client_goes_away(void **state)
{
    (void)state;
    ek_server *s = start((ek_server_limits){.prepare_threads = 1});
    ek_buf body = many_keys(200000);
    for (int i = 0; i < 3; i++) { /* one is being prepared, two wait */
        int fd = post_to(ek_server_port(s), CHAT, body.data);
        close(fd);
    }
    check_status(post_to(ek_server_port(s), CHAT, SMALL), "200", NULL);
    check_all_given_back(s);
    ek_buf_fini(&body);
    stop_server();
    restart();
}

/* A few bytes that continue a long conversation are no small job: others do not wait for two of them. */
static void short_bodies_that_continue_much(void **state)
{
    (void)state;
    ek_server *s = start((ek_server_limits){.prepare_threads = 2});
    ek_buf list = body_of(
        "[", "{\"type\":\"message\",\"role\":\"user\",\"content\":\"some words of a long conversation\"}", 60000, "]");
    ek_stored_response r = {.id = "resp_long", .input = list};
    ek_buf_str(&r.response, "[]");
    r.n = 2;
    ek_response_store_put(s->responses, 0, &r);
    int fd[4], replied = 0;
    for (int i = 0; i < 4; i++)
        fd[i] = post_to(ek_server_port(s), "/v1/responses",
                        "{\"input\":\"more\",\"max_output_tokens\":16,\"previous_response_id\":\"resp_long\"}");
    usleep(20000);
    check_status(post_to(ek_server_port(s), CHAT, SMALL), "200", NULL);
    for (int i = 0; i < 4; i++) {
        char byte;
        replied += recv(fd[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    }
    for (int i = 0; i < 4; i++) check_status(fd[i], "400", "context_length_exceeded");
    assert_in_range(replied, 0, 1);
    check_all_given_back(s);
    for (int i = 0; i < 4; i++) /* nobody waits for these */
        close(post_to(ek_server_port(s), "/v1/responses", "{\"input\":\"a\",\"previous_response_id\":\"resp_long\"}"));
    check_status(post_to(ek_server_port(s), CHAT, SMALL), "200", NULL);
    check_all_given_back(s);
    stop_server();
    restart();
}

/* What nobody waits for is given up between its stages, and within the long ones. */
static void what_nobody_waits_for(void **state)
{
    (void)state;
    static const char *const heads[] = {"{\"messages\":[{\"role\":\"user\",\"content\":\"", "{\"prompt\":\""};
    static const char *const tails[] = {"\"}]}", "\"}"};
    static const ek_dialect *const dialects[] = {&ek_dialect_openai_chat, &ek_dialect_openai_completions};
    ek_chat_model m;
    assert_int_equal(ek_chat_model_open(&m, "models/pocket"), EK_OK);
    ek_api_limits limits = {.defaults = ek_sampling_greedy(), .n_vocab = 1 << 18, .ctx_tokens = 1 << 20};
    for (int i = 0; i < 2; i++) {
        ek_buf body = body_of(heads[i], "some words", 20000, tails[i]);
        atomic_bool dropped = false;
        ek_api_request r;
        ek_turn_prompt p;
        ek_wanted_until(&dropped);
        assert_int_equal(ek_api_prepare(&r, &p, dialects[i], &m, body.data, body.len, &limits), EK_OK);
        assert_true(p.ids.len > 20000);
        ek_api_request_fini(&r);
        ek_turn_prompt_fini(&p);
        dropped = true;
        assert_int_equal(ek_api_prepare(&r, &p, dialects[i], &m, body.data, body.len, &limits), EK_ECANCELLED);
        assert_int_equal(p.ids.len, 0);
        ek_api_request_fini(&r);
        ek_turn_prompt_fini(&p);
        ek_ids ids = {0};
        assert_int_equal(ek_encode(m.tokenizer, body.data, body.len, NULL, 0, &ids), EK_ECANCELLED);
        assert_true(ids.len < 5000);
        ek_ids_fini(&ids);
        ek_wanted_until(NULL);
        ek_buf_fini(&body);
    }
    ek_chat_model_close(&m);
}

static void the_queue_is_full(void **state)
{
    (void)state;
    ek_server *s = start((ek_server_limits){.prepare_threads = 1, .prepare_queue = 1});
    ek_buf body = many_keys(200000);
    int fd[5], refused = 0;
    for (int i = 0; i < 5; i++) fd[i] = post_to(ek_server_port(s), CHAT, body.data);
    for (int i = 0; i < 5; i++) {
        ek_buf r = reply_of(fd[i]);
        if (!strncmp(r.data + 9, "429", 3) && strstr(r.data, "retry-after: 1") && strstr(r.data, "2 are allowed"))
            refused++;
        else assert_memory_equal(r.data + 9, "400", 3);
        ek_buf_fini(&r);
    }
    assert_in_range(refused, 1, 3);
    ek_buf_fini(&body);
    stop_server();
    restart();
}

static void a_signal_while_bodies_are_read(void **state)
{
    (void)state;
    ek_server *s = start((ek_server_limits){.prepare_threads = 1});
    ek_buf body = many_keys(200000);
    int large = post_to(ek_server_port(s), CHAT, body.data), small = post_to(ek_server_port(s), CHAT, SMALL);
    ek_buf_fini(&body);
    usleep(100000); /* both have arrived */
    stop_server();
    check_status(large, "400", "context_length");
    check_status(small, "200", NULL);
    restart();
}

/* What could never be served is told apart from what only has to wait. */
static void what_a_request_holds_already(void **state)
{
    (void)state;
    ek_request_memory m = {.total = 8 << 20};
    assert_int_equal(ek_request_memory_take(&m, 0, 6 << 20), EK_OK);
    assert_int_equal(ek_request_memory_take(&m, 6 << 20, 3 << 20), EK_ETOOLARGE);
    assert_non_null(strstr(ek_err_text(), "may need 9.0 MiB"));
    assert_int_equal(ek_request_memory_take(&m, 0, 3 << 20), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "other requests hold 6.0 of 8.0 MiB"));
    assert_int_equal(ek_request_memory_take(&m, 6 << 20, 2 << 20), EK_OK);
    assert_int_equal(atomic_load(&m.used), 8 << 20);
}

static void memory_is_counted_first(void **state)
{
    (void)state;
    ek_server *s = start((ek_server_limits){.request_memory = 8 << 20});
    ek_buf body = many_keys(200000);
    check_status(post_to(ek_server_port(s), CHAT, body.data), "413", "MiB of memory");
    check_status(post_to(ek_server_port(s), CHAT, SMALL), "200", NULL);
    check_all_given_back(s);
    assert_int_equal(ek_request_memory_take(&s->memory, 0, (8 << 20) - 100), EK_OK); /* somebody else holds it */
    check_status(post_to(ek_server_port(s), CHAT, SMALL), "503", "try again later");
    ek_request_memory_give(&s->memory, (8 << 20) - 100);
    check_status(post_to(ek_server_port(s), CHAT, SMALL), "200", NULL);
    ek_buf_fini(&body);
    stop_server();
    restart();
}

static void more_replies_than_can_wait(void **state)
{
    (void)state;
    ek_server *s = start((ek_server_limits){0});
    for (bool ready = false; !ready; usleep(10000)) { /* the canary takes a place, too */
        int fd = connect_to(ek_server_port(s));
        static const char get[] = "GET /ready HTTP/1.0\r\n\r\n";
        send_all(fd, get, sizeof get - 1);
        ek_buf r = reply_of(fd);
        ready = strstr(r.data, " 200 ") != NULL;
        ek_buf_fini(&r);
    }
    const char ask[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":1,\"n\":%d}";
    char body[200];
    snprintf(body, sizeof body, ask, 7);
    check_status(post_to(ek_server_port(s), CHAT, body), "400", "\"param\":\"n\"");
    snprintf(body, sizeof body, ask, 6);
    check_status(post_to(ek_server_port(s), CHAT, body), "200", NULL);
    stop_server();
    restart();
}

static void a_long_model_name(void **state)
{
    (void)state;
    ek_server *s = start((ek_server_limits){0});
    char body[1000], name[300];
    for (int n = 256; n <= 257; n++) {
        memset(name, 'm', sizeof name);
        name[n] = '\0';
        snprintf(body, sizeof body,
                 "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1}", name);
        check_status(post_to(ek_server_port(s), CHAT, body), n == 256 ? "200" : "400",
                     n == 256 ? "\"model\":\"tiny\"" : "257 bytes");
    }
    stop_server();
    restart();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_stops_the_loop),
        cmocka_unit_test(a_client_goes_away),
        cmocka_unit_test(short_bodies_that_continue_much),
        cmocka_unit_test(what_nobody_waits_for),
        cmocka_unit_test(the_queue_is_full),
        cmocka_unit_test(a_signal_while_bodies_are_read),
        cmocka_unit_test(memory_is_counted_first),
        cmocka_unit_test(what_a_request_holds_already),
        cmocka_unit_test(more_replies_than_can_wait),
        cmocka_unit_test(a_long_model_name),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
