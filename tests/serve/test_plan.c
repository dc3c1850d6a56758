/* The plan of a body: the first reading leaves out what is to be fetched, waited for or read among the large jobs, and
 * finds all of it; a body is read no more often than twice. */
#include "helper.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/encoding.h"
#include "base/log.h"
#include "hub/curl.h"
#include "serve/api/dialect.h"
#include "serve/fetch/fetch.h"
#include "serve/store/response_store.h"

#define PNG "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR42mP4z8AARAAI/gH/GcBr5wAAAABJRU5ErkJggg=="
/* 2000 x 2000 pixels, as the header says. */
#define LARGE_PNG "iVBORw0KGgoAAAANSUhEUgAAB9AAAAfQCAIAAAAVWlMuAAAAAElFTkSuQmCC"

/* --- a host of pictures --- */

typedef struct host {
    char urls[256]; /* that were asked for, each behind a blank */
    bool here;      /* they were fetched */
    ek_body_plan plan;
    ek_api_limits limits;
} host;

static ek_err fetch(void *arg, const char *url, size_t n, ek_buf *out, bool *here)
{
    host *h = arg;
    const size_t len = strlen(h->urls);
    snprintf(h->urls + len, sizeof h->urls - len, " %.*s", (int)n, url);
    *here = h->here;
    h->plan.no_fetched |= !h->here;
    if (h->here) ek_base64_decode(out, PNG, strlen(PNG));
    return EK_OK;
}

static int a_program; /* only its address is looked at: a test that ran it would crash */

static host open_host(ek_response_store *store, size_t max_beside, bool here)
{
    static const ek_chat_media both = {.image = true, .audio = true, .frame = true};
    return (host){.here = here,
                  .plan = {.max_beside = max_beside},
                  .limits = {.defaults = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
                             .n_vocab = 1000,
                             .ctx_tokens = 512,
                             .media = &both,
                             .responses = store,
                             .fetch = fetch,
                             .ffmpeg = (const struct ek_ffmpeg *)(const void *)&a_program,
                             .pdftotext = "pdftotext"}};
}

static ek_err read_body(host *h, ek_api_request *r, const ek_dialect *d, const char *body)
{
    h->limits.plan = &h->plan;
    h->limits.count_arg = h;
    return ek_api_read(r, d, body, strlen(body), &h->limits);
}

/* --- readings --- */

#define CHAT(parts)  "{\"messages\":[{\"role\":\"user\",\"content\":[" parts "]}]}"
#define IMAGE(url)   "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"}}"
#define VIDEO(url)   "{\"type\":\"video_url\",\"video_url\":{\"url\":\"" url "\"}}"
#define FILE_OF(url) "{\"type\":\"file\",\"file\":{\"file_data\":\"" url "\"}}"
#define PDF          "data:application/pdf;base64,JVBERi0xLjQK"

static void one_reading_finds_all_addresses(void **state)
{
    (void)state;
    static const char body[] = CHAT(IMAGE("http://a/1") "," VIDEO("https://a/2") "," IMAGE("http://a/3"));
    ek_api_request r;
    host h = open_host(NULL, 0, false);
    assert_int_equal(read_body(&h, &r, &ek_dialect_openai_chat, body), EK_OK);
    assert_string_equal(h.urls, " http://a/1 https://a/2 http://a/3");
    assert_true(h.plan.no_fetched && h.plan.no_program && !h.plan.too_large && ek_plan_lacks(&h.plan));
    ek_api_request_fini(&r);
    h = open_host(NULL, 1 << 20, true);
    assert_int_equal(read_body(&h, &r, &ek_dialect_openai_chat, CHAT(IMAGE("http://a/1"))), EK_OK);
    assert_false(ek_plan_lacks(&h.plan));
    assert_int_equal(r.conversation.n_images, 1);
    ek_api_request_fini(&r);
}

static void programs_are_waited_for_elsewhere(void **state)
{
    (void)state;
    static const char *const bodies[] = {CHAT(FILE_OF(PDF)), CHAT(VIDEO("data:video/mp4;base64,AAAA"))};
    for (int i = 0; i < 2; i++) {
        ek_api_request r;
        host h = open_host(NULL, 1 << 20, true);
        if (read_body(&h, &r, &ek_dialect_openai_chat, bodies[i])) fail_msg("%s", ek_err_text());
        assert_true(h.plan.no_program && !h.plan.no_fetched && !h.plan.too_large);
        ek_api_request_fini(&r);
    }
}

/* A mistake behind a file that is to be fetched is known before anything is fetched. */
static void mistakes_are_found_by_the_first_reading(void **state)
{
    (void)state;
    ek_api_request r;
    host h = open_host(NULL, 1 << 20, false);
    assert_int_equal(read_body(&h, &r, &ek_dialect_openai_chat, CHAT(IMAGE("http://a/1") "," IMAGE("ftp://a/2"))),
                     EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "ftp"));
    ek_api_request_fini(&r);
}

/* What is decoded when the prompt is made asks for no other reading. */
static void pictures_weigh(void **state)
{
    (void)state;
    ek_api_request r;
    host h = open_host(NULL, 1000, true);
    assert_int_equal(read_body(&h, &r, &ek_dialect_openai_chat, CHAT(IMAGE("data:image/png;base64," LARGE_PNG))),
                     EK_OK);
    assert_false(ek_plan_lacks(&h.plan));
    assert_in_range(h.plan.n_beside, 2000 * 2000 * 3 / 16, 2000 * 2000 * 16 / 16);
    assert_int_equal(r.conversation.n_images, 1);
    ek_api_request_fini(&r);
}

static void put(ek_response_store *s, const char *id, size_t n)
{
    ek_stored_response r = {.id = id};
    ek_buf_str(&r.input, "[{\"type\":\"message\",\"id\":\"msg_1\",\"role\":\"user\",\"content\":\"");
    for (size_t i = 0; i < n; i++) ek_buf_char(&r.input, 'x');
    ek_buf_str(&r.input, "\"}]");
    ek_buf_str(&r.response, "[]");
    r.n = 2;
    ek_response_store_put(s, 0, &r);
}

/* What only the conversation before would explain is no mistake as long as that was left out. */
static void long_conversations_are_left_out(void **state)
{
    (void)state;
    static const char body[] = "{\"previous_response_id\":\"resp_1\",\"input\":[{\"role\":\"user\",\"content\":["
                               "{\"type\":\"input_image\",\"image_url\":\"http://a/1\"}]}]}";
    ek_response_store *s = ek_response_store_open(10, 1 << 20);
    put(s, "resp_1", 5000);
    for (int large = 0; large < 2; large++) {
        ek_api_request r;
        host h = open_host(s, large ? SIZE_MAX : 4000, false);
        assert_int_equal(read_body(&h, &r, &ek_dialect_responses, body), EK_OK);
        assert_int_equal(h.plan.too_large, !large);
        assert_int_equal(h.plan.n_beside > 5000, !large);
        assert_true(h.plan.no_fetched);
        assert_string_equal(h.urls, " http://a/1");
        assert_int_equal(r.conversation.n_messages, large ? 2 : 1);
        ek_api_request_fini(&r);
    }
    ek_response_store_close(s);
}

/* A body of a few references to items below the limit may bring as much as one conversation. */
static void many_short_ones_are_a_long_one(void **state)
{
    (void)state;
    enum { N = 8, EACH = 600, MAX = 4000 };
    ek_response_store *s = ek_response_store_open(N, 1 << 20);
    ek_buf body = {0};
    ek_buf_str(&body, "{\"input\":[");
    for (int i = 0; i < N; i++) {
        char id[16];
        ek_stored_response one = {.id = id};
        ek_buf_fmt(&one.input, "[{\"type\":\"message\",\"id\":\"msg_%d\",\"role\":\"user\",\"content\":\"%*d\"}]", i,
                   EACH, i);
        snprintf(id, sizeof id, "msg_%d", i);
        ek_response_store_note(s, 0, &one.items, id, strlen(id), (ek_stored_item){.from = 1, .n = one.input.len - 2});
        snprintf(id, sizeof id, "resp_%d", i);
        assert_true(ek_response_store_put(s, 0, &one));
        ek_buf_fmt(&body, "%s{\"type\":\"item_reference\",\"id\":\"msg_%d\"}", i > 0 ? "," : "", i);
        if (i + 1 == N / 2 || i + 1 == N) {
            ek_buf whole = {0};
            ek_api_request r;
            host h = open_host(s, MAX, false);
            ek_buf_fmt(&whole, "%s]}", body.data);
            const ek_err err = read_body(&h, &r, &ek_dialect_responses, whole.data);
            assert_int_equal(h.plan.too_large, i + 1 == N);
            assert_int_equal(h.plan.n_beside > MAX, i + 1 == N);
            if (i + 1 < N) assert_int_equal(err, EK_OK);
            ek_api_request_fini(&r);
            ek_buf_fini(&whole);
        }
    }
    ek_buf_fini(&body);
    ek_response_store_close(s);
}

/* --- the server --- */

static int n_readings;
static size_t weight;  /* bytes beside the body */
static bool is_stored; /* that are to be read, not decoded when the prompt is made */
static bool fetches;   /* an address where nobody listens */

static ek_err count_readings(ek_api_request *r, const char *body, size_t n, const ek_api_limits *limits)
{
    static const char nowhere[] = "http://127.0.0.1:1/";
    ek_buf bytes = {0};
    bool here;
    n_readings++;
    if (fetches) (void)limits->fetch(limits->count_arg, nowhere, sizeof nowhere - 1, &bytes, &here);
    if (is_stored) ek_plan_reads(limits->plan, weight);
    else ek_plan_weigh(limits->plan, weight);
    return ek_api_parse(r, &ek_dialect_openai_chat, body, n, limits);
}

static void no_body_is_read_three_times(void **state)
{
    (void)state;
    static const struct {
        size_t weight;
        bool is_stored, fetches;
        int readings;
    } rows[] = {
        {0, true, false, 1},        {1 << 10, true, false, 1},  {1 << 20, true, false, 2},
        {1 << 20, false, false, 1}, {1 << 10, true, true, 2},   {1 << 20, true, true, 2},
        {1 << 20, false, true, 2},  {256 << 10, true, true, 2}, /* too much beside the body, and no more than a small
                                                                   job may have alone */
    };
    static ek_dialect chat;
    static const ek_dialect *const dialects[] = {&chat, NULL};
    chat = ek_dialect_openai_chat;
    chat.parse = count_readings;
    const bool can_fetch = !ek_curl_load();
    ek_server *s = start_tiny(4, 16,
                              (ek_server_opts){.http.max_body = 4096,
                                               .dialects = dialects,
                                               .media_urls = can_fetch ? EK_FETCH_ALL : EK_FETCH_OFF});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].fetches && !can_fetch) continue;
        n_readings = 0;
        weight = rows[i].weight;
        is_stored = rows[i].is_stored, fetches = rows[i].fetches;
        ek_buf b = reply_of(post_to(ek_server_port(s), "/v1/chat/completions",
                                    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1}"));
        assert_non_null(strstr(b.data, "HTTP/1.1 200"));
        if (n_readings != rows[i].readings) fail_msg("row %zu: %d readings", i, n_readings);
        ek_buf_fini(&b);
    }
    stop_tiny();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_reading_finds_all_addresses),
        cmocka_unit_test(programs_are_waited_for_elsewhere),
        cmocka_unit_test(mistakes_are_found_by_the_first_reading),
        cmocka_unit_test(pictures_weigh),
        cmocka_unit_test(long_conversations_are_left_out),
        cmocka_unit_test(many_short_ones_are_a_long_one),
        cmocka_unit_test(no_body_is_read_three_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
