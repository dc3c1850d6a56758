/* The library's chats: events, whole replies, calls, cancelled ones that are resumed, and what is wrong in a body. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <evenkeel.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/encoding.h"
#include "base/file.h"

static evenkeel *engine;

typedef struct reply {
    ek_buf text, reasoning, whole, state;
    char name[64], call_id[64];
    ek_buf arguments;
    int n_calls;
    evenkeel_event end; /* without its texts */
} reply;

static void free_reply(reply *r)
{
    ek_buf *all[] = {&r->text, &r->reasoning, &r->whole, &r->state, &r->arguments};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ek_buf_fini(all[i]);
}

static void take(reply *r, const evenkeel_event *e)
{
    if (e->kind == EVENKEEL_TEXT) ek_buf_add(&r->text, e->text, e->n);
    if (e->kind == EVENKEEL_REASONING) ek_buf_add(&r->reasoning, e->text, e->n);
    if (e->kind == EVENKEEL_CALL) {
        snprintf(r->name, sizeof r->name, "%s", e->name);
        snprintf(r->call_id, sizeof r->call_id, "%s", e->call_id);
        ek_buf_clear(&r->arguments);
        ek_buf_add(&r->arguments, e->text, e->n);
        r->n_calls++;
    }
    if (e->kind != EVENKEEL_END) return;
    r->end = *e;
    ek_buf_add(&r->whole, e->text, e->n);
    ek_buf_str(&r->state, e->state);
}

/* cancel_at: events of text behind which it is cancelled; 0: never. */
static void chat(const char *body, reply *r, int cancel_at)
{
    evenkeel_queue *q;
    evenkeel_id id;
    evenkeel_event *e;
    int n = 0;
    memset(r, 0, sizeof *r);
    assert_int_equal(evenkeel_queue_open(&q, engine), EK_DONE);
    assert_int_equal(evenkeel_chat(q, body, strlen(body), r, &id), EK_DONE);
    while ((e = evenkeel_next(q, -1))) {
        assert_true(e->user == r && e->request == id);
        take(r, e);
        n += e->kind == EVENKEEL_TEXT;
        if (cancel_at && n == cancel_at) evenkeel_cancel(engine, id);
        evenkeel_event_free(e);
    }
    evenkeel_queue_close(q);
}

static json_t *parsed(const ek_buf *b)
{
    json_t *v = json_loadb(ek_buf_text(b), b->len, 0, NULL);
    if (!v) fail_msg("no JSON: %s", ek_buf_text(b));
    return v;
}

/* The message of the whole reply's choice i; of root, which is borrowed. */
static json_t *message(json_t *root, size_t i)
{
    return json_object_get(json_array_get(json_object_get(root, "choices"), i), "message");
}

#define SAY(text) "\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]"
#define WEATHER                                                                                                                 \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Get the current weather for a " \
    "city.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"description\":\"The city\"}}," \
    "\"required\":[\"city\"]}}}]"

static void events_are_the_whole_reply(void **state)
{
    reply r;
    (void)state;
    chat("{" SAY("Hello") ",\"temperature\":0,\"max_tokens\":40,\"stream\":true,\"evenkeel\":{\"digest\":true}}", &r,
         0);
    json_t *root = parsed(&r.whole);
    assert_string_equal(json_string_value(json_object_get(message(root, 0), "content")), ek_buf_text(&r.text));
    assert_true(r.text.len > 0);
    assert_int_equal(r.end.finish, EVENKEEL_STOP);
    const json_t *usage = json_object_get(root, "usage"), *ours = json_object_get(root, "evenkeel");
    assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), r.end.prompt_tokens);
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), r.end.tokens);
    char digest[20];
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)r.end.digest);
    assert_string_equal(json_string_value(json_object_get(ours, "digest")), digest);
    assert_int_equal(r.state.len, 0);
    json_decref(root);
    free_reply(&r);
}

static void a_call_has_its_arguments(void **state)
{
    reply r;
    (void)state;
    chat("{" SAY("What's the weather in Oslo?") "," WEATHER ",\"temperature\":0}", &r, 0);
    assert_int_equal(r.n_calls, 1);
    assert_string_equal(r.name, "get_weather");
    assert_string_equal(ek_buf_text(&r.arguments), "{\"city\":\"Oslo\"}");
    assert_int_equal(r.end.finish, EVENKEEL_CALLS);
    json_t *root = parsed(&r.whole);
    const json_t *call = json_array_get(json_object_get(message(root, 0), "tool_calls"), 0);
    assert_string_equal(json_string_value(json_object_get(call, "id")), r.call_id);
    json_decref(root);
    free_reply(&r);
}

/* The same body with a state. */
static char *resuming(const char *body, const ek_buf *state)
{
    json_t *root = json_loads(body, 0, NULL), *s = parsed(state);
    json_object_set_new(json_object_get(root, "evenkeel"), "resume", s);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

static void a_cancelled_chat_is_resumed(void **state)
{
    static const char body[] =
        "{" SAY("Write a story about a boat.") ",\"temperature\":1,\"seed\":11,\"max_tokens\":48,"
                                               "\"evenkeel\":{\"digest\":true}}";
    reply whole, part, rest;
    (void)state;
    chat(body, &whole, 0);
    for (int at = 1; at < 6; at += 2) {
        chat(body, &part, at);
        if (part.end.finish != EVENKEEL_CANCELLED) { /* it was too late */
            free_reply(&part);
            continue;
        }
        assert_int_equal(part.whole.len, 0);
        assert_true(part.state.len > 0 && part.end.tokens < whole.end.tokens);
        char *again = resuming(body, &part.state);
        chat(again, &rest, 0);
        free(again);
        if (rest.end.finish == EVENKEEL_ERROR) fail_msg("%s", ek_buf_text(&rest.whole));
        assert_string_equal(ek_buf_text(&rest.text), ek_buf_text(&whole.text));
        assert_true(rest.end.digest == whole.end.digest);
        assert_int_equal(rest.end.tokens, whole.end.tokens);
        free_reply(&part);
        free_reply(&rest);
    }
    free_reply(&whole);
}

static void another_bodys_state_is_refused(void **state)
{
    static const char body[] = "{" SAY("Write a story about a boat.") ",\"ignore_eos\":true,\"evenkeel\":{}}";
    reply first, rest;
    (void)state;
    chat(body, &first, 1);
    assert_int_equal(first.end.finish, EVENKEEL_CANCELLED);
    char *other = resuming("{" SAY("Count to thirty.") ",\"ignore_eos\":true,\"evenkeel\":{}}", &first.state);
    chat(other, &rest, 0);
    free(other);
    assert_int_equal(rest.end.status, EK_BAD_ARGUMENT);
    assert_non_null(strstr(ek_buf_text(&rest.whole), "evenkeel.resume.digest"));
    free_reply(&first);
    free_reply(&rest);
}

static void a_chat_that_may_not_be_computed_is_refused(void **state)
{
    static const char body[] = "{" SAY("Hello") ",\"cache_hit_threshold\":1,\"max_tokens\":2}";
    reply r;
    (void)state;
    chat(body, &r, 0);
    assert_int_equal(r.end.status, EK_BAD_ARGUMENT);
    assert_non_null(strstr(ek_buf_text(&r.whole), "cache_hit_threshold"));
    free_reply(&r);
}

static void several_replies_differ_by_their_choice(void **state)
{
    evenkeel_queue *q;
    evenkeel_event *e;
    static const char body[] = "{" SAY(
        "Write a story.") ",\"temperature\":2,\"top_k\":0,\"top_p\":1,\"seed\":3,\"n\":3,\"ignore_eos\":true,\"max_tokens\":60}";
    ek_buf text[3] = {{0}};
    (void)state;
    assert_int_equal(evenkeel_queue_open(&q, engine), EK_DONE);
    assert_int_equal(evenkeel_chat(q, body, strlen(body), NULL, NULL), EK_DONE);
    json_t *root = NULL;
    while ((e = evenkeel_next(q, -1))) {
        if (e->kind == EVENKEEL_TEXT) ek_buf_add(&text[e->choice], e->text, e->n);
        if (e->kind == EVENKEEL_END) root = json_loadb(e->text, e->n, 0, NULL);
        evenkeel_event_free(e);
    }
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(json_string_value(json_object_get(message(root, i), "content")), ek_buf_text(&text[i]));
    assert_string_not_equal(ek_buf_text(&text[0]), ek_buf_text(&text[1]));
    for (int i = 0; i < 3; i++) ek_buf_fini(&text[i]);
    json_decref(root);
    evenkeel_queue_close(q);
}

static void wrong_bodies_end_with_their_mistake(void **state)
{
    static const struct {
        const char *body, *said;
        ek_status status;
    } wrong[] = {
        {"", "", EK_BAD_ARGUMENT},
        {"[]", "", EK_BAD_ARGUMENT},
        {"{\"messages\":\"hi\"}", "messages", EK_BAD_ARGUMENT},
        {"{" SAY("x") ",\"temperature\":-3}", "temperature", EK_BAD_ARGUMENT},
        {"{" SAY("x") ",\"evenkeel\":{\"resume\":{\"tokens\":[1]}}}", "evenkeel.resume", EK_BAD_ARGUMENT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        reply r;
        chat(wrong[i].body, &r, 0);
        assert_int_equal(r.end.finish, EVENKEEL_ERROR);
        assert_int_equal(r.end.status, wrong[i].status);
        if (!strstr(ek_buf_text(&r.whole), wrong[i].said) || r.whole.len == 0)
            fail_msg("no \"%s\" in: %s", wrong[i].said, ek_buf_text(&r.whole));
        free_reply(&r);
    }
    ek_buf many = {0};
    reply r;
    ek_buf_str(&many, "{\"messages\":[");
    for (int i = 0; i < 1000001; i++) ek_buf_str(&many, "0,");
    ek_buf_str(&many, "0]}");
    chat(ek_buf_text(&many), &r, 0);
    if (r.end.status != EK_TOO_LONG) fail_msg("%s", ek_buf_text(&r.whole));
    free_reply(&r);
    ek_buf_fini(&many);
}

static void cancelled_before_it_is_read(void **state)
{
    evenkeel_queue *q;
    evenkeel_event *e;
    (void)state;
    assert_int_equal(evenkeel_queue_open(&q, engine), EK_DONE);
    static const char body[] = "{" SAY("Write a long story.") ",\"ignore_eos\":true}";
    int n_ends = 0;
    for (int i = 0; i < 40; i++) {
        evenkeel_id id;
        assert_int_equal(evenkeel_chat(q, body, strlen(body), NULL, &id), EK_DONE);
        evenkeel_cancel(engine, id);
    }
    while ((e = evenkeel_next(q, -1))) {
        if (e->kind == EVENKEEL_END) {
            n_ends++;
            assert_int_equal(e->finish, EVENKEEL_CANCELLED);
        }
        evenkeel_event_free(e);
    }
    assert_int_equal(n_ends, 40);
    for (int i = 0; i < 8; i++) evenkeel_chat(q, body, strlen(body), NULL, NULL);
    evenkeel_queue_close(q); /* with all of them somewhere */
}

/* A chat's prompt as tokens gives the chat's reply. */
static void a_prompt_as_tokens_is_the_chats(void **state)
{
    static const char body[] = "{" SAY("Hello") ",\"temperature\":0,\"max_tokens\":30,\"evenkeel\":{\"digest\":true}}";
    reply r;
    int32_t tokens[256];
    size_t n;
    evenkeel_queue *q;
    evenkeel_event *e;
    (void)state;
    chat(body, &r, 0);
    assert_int_equal(evenkeel_chat_tokens(engine, body, strlen(body), tokens, 256, &n), EK_DONE);
    assert_int_equal(n, r.end.prompt_tokens);
    evenkeel_request ask = {.size = sizeof ask, .tokens = tokens, .n_tokens = n, .max_tokens = 30, .digest = 1};
    assert_int_equal(evenkeel_queue_open(&q, engine), EK_DONE);
    assert_int_equal(evenkeel_generate(q, &ask, NULL), EK_DONE);
    while ((e = evenkeel_next(q, -1))) {
        if (e->kind == EVENKEEL_END) assert_true(e->digest == r.end.digest);
        evenkeel_event_free(e);
    }
    evenkeel_queue_close(q);
    assert_int_equal(evenkeel_chat_tokens(engine, "{}", 2, tokens, 256, &n), EK_BAD_ARGUMENT);
    assert_int_equal(n, 0);
    free_reply(&r);
}

static void pictures_are_seen(void **state)
{
    ek_buf file = {0}, body = {0};
    reply r;
    int32_t tokens[4];
    size_t n;
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it takes the clone that starts the decoder for a fork, and forgets what locks had said */
#endif
    assert_int_equal(ek_file_read(&file, "docs/pocket-curves.png", 1 << 24), EK_OK);
    ek_buf_str(
        &body,
        "{\"temperature\":0,\"max_tokens\":4,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"What?\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,");
    ek_base64_encode(&body, file.data, file.len);
    ek_buf_str(&body, "\"}}]}]}");
    chat(ek_buf_text(&body), &r, 0);
    if (r.end.finish == EVENKEEL_ERROR) fail_msg("%s", ek_buf_text(&r.whole));
    assert_true(r.end.prompt_tokens > 60); /* most of them are the picture's */
    assert_int_equal(evenkeel_chat_tokens(engine, ek_buf_text(&body), body.len, tokens, 4, &n), EK_NOT_SUPPORTED);
    free_reply(&r);
    ek_buf_fini(&file);
    ek_buf_fini(&body);
}

static atomic_int n_signals;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&n_signals, 1);
}

/* While the program's thread does not want one, no thread of the library takes it. */
static void signals_are_the_programs(void **state)
{
    evenkeel_queue *q;
    static const char body[] = "{" SAY("Hello") ",\"ignore_eos\":true,\"max_tokens\":200}";
    sigset_t one;
    (void)state;
    signal(SIGUSR1, on_signal);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    assert_int_equal(evenkeel_queue_open(&q, engine), EK_DONE);
    assert_int_equal(evenkeel_chat(q, body, strlen(body), NULL, NULL), EK_DONE);
    kill(getpid(), SIGUSR1);
    for (evenkeel_event *e; (e = evenkeel_next(q, -1));) evenkeel_event_free(e);
    assert_int_equal(atomic_load(&n_signals), 0);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    assert_int_equal(atomic_load(&n_signals), 1);
    evenkeel_queue_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_the_whole_reply),
        cmocka_unit_test(a_call_has_its_arguments),
        cmocka_unit_test(a_cancelled_chat_is_resumed),
        cmocka_unit_test(another_bodys_state_is_refused),
        cmocka_unit_test(a_chat_that_may_not_be_computed_is_refused),
        cmocka_unit_test(several_replies_differ_by_their_choice),
        cmocka_unit_test(wrong_bodies_end_with_their_mistake),
        cmocka_unit_test(cancelled_before_it_is_read),
        cmocka_unit_test(a_prompt_as_tokens_is_the_chats),
        cmocka_unit_test(pictures_are_seen),
        cmocka_unit_test(signals_are_the_programs),
    };
    evenkeel_options o = {.size = sizeof o, .model = "models/pocket", .device = "cpu", .threads = 2, .context = 1024};
    if (evenkeel_open(&engine, &o) != EK_DONE) {
        fprintf(stderr, "%s\n", ek_last_error());
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    evenkeel_close(engine);
    return failed;
}
