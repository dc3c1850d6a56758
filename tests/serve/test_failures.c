/* What fails inside a request ends that request, in the API's words, and no other. The model is
 * random and tiny; its forward pass fails for rows that hold one chosen token. */
#include "helper.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/executor.h"

static ek_model *model;
static ek_engine *engine;
static ek_server *server;
static int32_t poison; /* a row with this token fails */
static ek_executor real;
static bool dies, lost, ended; /* the device is lost with the next poisoned row; it is; the server has ended */

static ek_err step(void *arg, const ek_step *s)
{
    for (int i = 0; i < s->n_rows; i++) lost |= dies && s->row[i].token == poison;
    if (lost) return ek_fail(EK_EINTERNAL, "the device fell off the bus");
    for (int i = 0; i < s->n_rows; i++)
        if (s->row[i].token == poison)
            return ek_fail(EK_EINTERNAL, "the row of position %d is poisoned", s->row[i].pos);
    return real.step(arg, s);
}

static const char *broken(void *arg)
{
    (void)arg;
    return lost ? "the device fell off the bus" : NULL;
}

static int start(void **state)
{
    ek_tokenizer *t;
    (void)state;
    ek_log_set(EK_LOG_ERROR);
    assert_int_equal(ek_chat_tokenizer_open(&t, "models/pocket"), EK_OK);
    poison = ek_tokenizer_id(t, "~");
    assert_true(poison > 0);
    ek_tokenizer_close(t);
    model = tiny_model();
    real = ek_executor_cpu(model);
    ek_executor x = real;
    x.step = step, x.broken = broken;
    ek_engine_opts eo = ek_engine_defaults();
    eo.max_requests = 4;
    assert_int_equal(ek_engine_open_on(&engine, &x, &eo), EK_OK);
    ek_server_opts so = {.http.max_body = 1 << 20, .model = model, .model_dir = "models/pocket", .model_name = "tiny"};
    server = start_server(engine, &so);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    if (!ended) stop_server();
    ek_engine_close(engine);
    ek_model_close(model);
    return 0;
}

static int post(const char *body)
{
    return post_to(ek_server_port(server), "/v1/chat/completions", body);
}

#define GOOD \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"temperature\":0,\"ignore_eos\":true,\"max_tokens\":200}"

/* The reply's choices: everything but ids, times and how much of the prompt came from the cache. */
static char *words_of(ek_buf *reply)
{
    const char *at = strstr(ek_buf_text(reply), "\"choices\"");
    if (!at) print_error("%s\n", ek_buf_text(reply));
    assert_non_null(at);
    char *copy = ek_strdup(at), *usage = strstr(copy, ",\"usage\"");
    assert_non_null(usage);
    *usage = '\0';
    ek_buf_fini(reply);
    return copy;
}

static void test_before_the_first_byte(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a ~ b\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a ~ b\"}],\"stream\":true}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a ~ b\"}],\"n\":3}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        ek_buf r = reply_of(post(bodies[i]));
        assert_memory_equal(r.data, "HTTP/1.1 500 ", 13);
        assert_non_null(strstr(r.data, "\"server_error\""));
        assert_non_null(strstr(r.data, "poisoned"));
        ek_buf_fini(&r);
    }
}

static void test_inside_a_stream(void **state)
{
    (void)state;
    ek_buf body = {0};
    ek_buf_fmt(
        &body,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,\"temperature\":0,\"logit_bias\":{\"%d\":100}}",
        poison);
    ek_buf r = reply_of(post(body.data));
    assert_memory_equal(r.data, "HTTP/1.1 200 ", 13);
    assert_non_null(strstr(r.data, "\"content\":\"~\""));
    assert_non_null(strstr(r.data, "\"finish_reason\":\"error\""));
    assert_non_null(strstr(r.data, "\"error\":{\"message\":"));
    assert_non_null(strstr(r.data, "data: [DONE]\n\n"));
    ek_buf_fini(&r);
    ek_buf_fini(&body);
}

static void test_no_other(void **state)
{
    (void)state;
    ek_buf r = reply_of(post(GOOD));
    assert_memory_equal(r.data, "HTTP/1.1 200 ", 13);
    char *alone = words_of(&r);
    int good[3];
    for (int i = 0; i < 3; i++) {
        good[i] = post(GOOD);
        ek_buf failed = reply_of(post("{\"messages\":[{\"role\":\"user\",\"content\":\"~\"}]}"));
        assert_memory_equal(failed.data, "HTTP/1.1 500 ", 13);
        ek_buf_fini(&failed);
    }
    for (int i = 0; i < 3; i++) {
        r = reply_of(good[i]);
        char *words = words_of(&r);
        assert_string_equal(words, alone);
        free(words);
    }
    free(alone);
}

/* Whoever supervises the process has to start another one: it is not well from the first reply on that tells a client.
 */
static void a_lost_device_ends_the_server(void **state)
{
    (void)state;
    static const char health[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    int running = post(GOOD), before = connect_to(ek_server_port(server)), after = connect_to(ek_server_port(server));
    send_all(before, health, sizeof health - 1);
    ek_buf r = reply_of(before);
    assert_memory_equal(r.data, "HTTP/1.1 200 ", 13);
    ek_buf_fini(&r);
    dies = true;
    r = reply_of(post("{\"messages\":[{\"role\":\"user\",\"content\":\"~\"}]}"));
    assert_memory_equal(r.data, "HTTP/1.1 50", 11);
    assert_non_null(strstr(r.data, "fell off the bus"));
    ek_buf_fini(&r);
    send_all(after, health, sizeof health - 1);
    r = reply_of(after);
    assert_memory_equal(r.data, "HTTP/1.1 503 ", 13);
    assert_non_null(strstr(r.data, "\"status\":\"stopping\""));
    ek_buf_fini(&r);
    r = reply_of(running); /* it may have been quicker */
    assert_true(strstr(r.data, "fell off the bus") || strstr(r.data, "\"finish_reason\":\"length\""));
    ek_buf_fini(&r);
    ended = true;
    assert_int_equal(await_server(), EK_EIO);
    char why[64];
    assert_true(ek_engine_broken(engine, why, sizeof why));
    assert_string_equal(why, "the device fell off the bus");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_the_first_byte),
        cmocka_unit_test(test_inside_a_stream),
        cmocka_unit_test(test_no_other),
        cmocka_unit_test(a_lost_device_ends_the_server),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
