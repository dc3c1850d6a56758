/* Web pages of others', and owners: who may use a server on this machine, and whose its stored responses are. */
#include "helper.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "serve/http/access.h"
#include "../support/files.h"

#define CHAT      "/v1/chat/completions"
#define MESSAGES  "/v1/messages"
#define RESPONSES "/v1/responses"
#define SMALL     "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"temperature\":0,\"max_tokens\":2}"
#define STORED    "{\"input\":\"hello\",\"temperature\":0,\"max_output_tokens\":16}"

static ek_server *server;

static void start(ek_server_opts so)
{
    if (!so.cors_origins) so.cors_origins = "localhost";
    server = start_tiny(4, 256, so);
}

static void hosts_that_nobody_else_can_have(void **state)
{
    (void)state;
    static const char *const own[] = {
        "",      "localhost",  "LOCALHOST:80",         "localhost.:1", "a.localhost", "127.0.0.1:8080", "127.9.9.9",
        "[::1]", "[::1]:8080", "[::ffff:127.0.0.1]:1", "0.0.0.0:8080", "evenkeel",    "my-box_2:8080"};
    static const char *const foreign[] = {"evil.example",
                                          "evil.example:8080",
                                          "localhost.evil.example",
                                          "127.0.0.1.evil.example",
                                          "10.0.0.1",
                                          "127.0.0.256",
                                          "[::2]",
                                          "[::1",
                                          "[::1]x",
                                          "[::ffff:10.0.0.1]",
                                          "evil.example:80:80",
                                          "a@evil.example",
                                          "localhost:80x",
                                          "a.localhost.b",
                                          "xlocalhost.c",
                                          ".",
                                          "\xff",
                                          "a b"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!ek_origins_host_fits(NULL, own[i])) fail_msg("refused: %s", own[i]);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (ek_origins_host_fits("a.example, [::3]", foreign[i])) fail_msg("taken: %s", foreign[i]);
    assert_true(ek_origins_host_fits(NULL, NULL));
    assert_true(ek_origins_host_fits("b.example, A.example", "a.EXAMPLE:123"));
    assert_true(ek_origins_host_fits("a.example:8080", "a.example:8080"));
    assert_false(ek_origins_host_fits("a.example:8080", "a.example:808"));
    assert_false(ek_origins_host_fits("a.example:8080", "a.example"));
    assert_true(ek_origins_host_fits("10.0.0.1", "10.0.0.1:8080"));
    assert_true(ek_origins_host_fits("[fe80::1]", "[FE80::1]:8080"));
    assert_true(ek_origins_host_fits("x.example,*", "evil.example"));
}

static void pages_of_the_server_itself(void **state)
{
    (void)state;
    assert_true(ek_origins_page_fits("", "http://127.0.0.1:8080", "127.0.0.1:8080"));
    assert_true(ek_origins_page_fits("", "https://a.example", "A.example"));
    assert_true(ek_origins_page_fits("", "https://a.example", "a.example:443"));
    assert_true(ek_origins_page_fits("", "http://[::1]:8080", "[::1]:8080"));
    assert_false(ek_origins_page_fits("", "http://127.0.0.1:8081", "127.0.0.1:8080"));
    assert_false(ek_origins_page_fits("", "http://a.example:443", "a.example"));
    assert_false(ek_origins_page_fits("", "http://a.example", NULL));
    assert_false(ek_origins_page_fits("", "null", "null"));
    assert_false(ek_origins_page_fits("", "a.example", "a.example"));
    assert_false(ek_origins_page_fits("", "ftp://a.example", "a.example"));
    assert_false(ek_origins_page_fits("localhost", "http://b.example", "a.example"));
    assert_true(ek_origins_page_fits("https://b.example", "https://b.example", "a.example"));
    assert_true(ek_origins_page_fits("null", "null", "a.example"));
    assert_true(ek_origins_page_fits("*", "null", NULL));
}

/* A page sends text/plain, and forms, without asking first; what it may not read has still been computed. */
static void a_foreign_page_runs_nothing(void **state)
{
    (void)state;
    start((ek_server_opts){0});
    static const char *const types[] = {"", "content-type: text/plain\r\n", "content-type: application/json\r\n",
                                        "content-type: application/x-www-form-urlencoded\r\n"};
    char h[200];
    for (size_t i = 0; i < 4; i++) {
        snprintf(h, sizeof h, "host: 127.0.0.1:8080\r\norigin: https://evil.example\r\n%s", types[i]);
        check_server("POST", CHAT, h, SMALL, 403, "--cors-origins");
    }
    check_server("POST", CHAT, "host: x\r\norigin: null\r\n", SMALL, 403, "\"error\":{\"message\":");
    check_server("POST", MESSAGES, "host: x\r\norigin: https://evil.example\r\n", SMALL, 403,
                 "\"type\":\"permission_error\"");
    check_server("POST", RESPONSES, "host: x\r\norigin: https://evil.example\r\n", STORED, 403, "evil.example");
    check_server("DELETE", RESPONSES "/resp_1", "host: x\r\norigin: https://evil.example\r\n", "", 403, "evil.example");
    check_server("GET", RESPONSES "/resp_1", "host: x\r\norigin: https://evil.example\r\n", "", 403, "evil.example");
    check_server("POST", CHAT, "host: evil.example:8080\r\n", SMALL, 403, "--allowed-hosts");
    check_server("POST", CHAT, "host: evil.example\r\norigin: http://evil.example\r\n", SMALL, 403, "--allowed-hosts");
    check_server("GET", "/", "host: evil.example\r\n", "", 403, "evil.example");
    check_server("GET", "/metrics", "host: evil.example\r\n", "", 403, "evil.example");
    check_server("GET", "/health", "host: x\r\n", "", 200, "ok");
    check_server("POST", CHAT, "host: localhost:1\r\norigin: http://localhost:3000\r\n", SMALL, 200, "chat.completion");
    check_server("POST", CHAT, "host: [::1]:1\r\norigin: http://[::1]:1\r\n", SMALL, 200, "chat.completion");
    ek_buf r = ask_server("OPTIONS", CHAT,
                          "host: x\r\norigin: https://evil.example\r\naccess-control-request-method: POST\r\n", "");
    assert_null(strstr(ek_buf_text(&r), "access-control-allow"));
    ek_buf_fini(&r);
    stop_tiny();
}

/* The refusal comes before the body: a page cannot make the server hold what it sends. */
static void a_foreign_body_is_not_taken(void **state)
{
    (void)state;
    start((ek_server_opts){0});
    int fd = connect_to(ek_server_port(server));
    static const char head[] = "POST " CHAT " HTTP/1.1\r\nhost: x\r\norigin: https://evil.example\r\n"
                               "content-length: 1000000\r\n\r\n";
    send_all(fd, head, sizeof head - 1);
    ek_buf r = reply_of(fd);
    assert_memory_equal(ek_buf_text(&r), "HTTP/1.1 403 ", 13);
    ek_buf_fini(&r);
    stop_tiny();
}

static void allowed_by_name(void **state)
{
    (void)state;
    start((ek_server_opts){.allowed_hosts = "api.example.com", .cors_origins = "https://page.example,null"});
    check_server("POST", CHAT, "host: api.example.com\r\norigin: https://api.example.com\r\n", SMALL, 200,
                 "chat.completion");
    check_server("POST", CHAT, "host: api.example.com\r\norigin: https://page.example\r\n", SMALL, 200,
                 "chat.completion");
    check_server("POST", CHAT, "host: x\r\norigin: null\r\n", SMALL, 200, "chat.completion");
    check_server("POST", CHAT, "host: api.example.com\r\norigin: http://localhost:1\r\n", SMALL, 403, "localhost:1");
    check_server("POST", CHAT, "host: evil.example\r\n", SMALL, 403, "--allowed-hosts");
    stop_tiny();
}

/* Who has a key is no page that happens to be open, and a proxy may call the server what it likes. */
static void a_key_is_enough(void **state)
{
    (void)state;
    start((ek_server_opts){.api_keys = "k"});
    check_server("POST", CHAT, "host: api.example.com\r\nx-api-key: k\r\n", SMALL, 200, "chat.completion");
    check_server("POST", CHAT, "host: x\r\nx-api-key: k\r\norigin: https://a.example\r\n", SMALL, 200,
                 "chat.completion");
    check_server("POST", CHAT, "host: x\r\norigin: https://a.example\r\n", SMALL, 401, "invalid_api_key");
    stop_tiny();
    start((ek_server_opts){.api_keys = "k", .allowed_hosts = "api.example.com"});
    check_server("POST", CHAT, "host: api.example.com\r\nx-api-key: k\r\n", SMALL, 200, "chat.completion");
    check_server("POST", CHAT, "host: other.example.com\r\nx-api-key: k\r\n", SMALL, 403, "--allowed-hosts");
    stop_tiny();
}

static void stored_id(char *id, size_t room, const char *headers, const char *body)
{
    ek_buf r = ask_server("POST", RESPONSES, headers, body);
    const char *at = strstr(ek_buf_text(&r), "\"id\":\"resp_");
    if (!at) fail_msg("no response: %.600s", ek_buf_text(&r));
    snprintf(id, room, "%.*s", (int)strcspn(at + 6, "\""), at + 6);
    ek_buf_fini(&r);
}

/* One key is an owner like one of several: who has the next key is somebody else. */
static void a_new_key_reads_nothing_of_the_old_one(void **state)
{
    (void)state;
    char *dir = temp_dir(), keys[100], id[64], path[128], body[256];
    snprintf(keys, sizeof keys, "%s/keys", dir);
    put_text(dir, "keys", "old\n");
    start((ek_server_opts){.api_key_file = keys});
    stored_id(id, sizeof id, "host: x\r\nx-api-key: old\r\n", STORED);
    snprintf(path, sizeof path, RESPONSES "/%s", id);
    snprintf(body, sizeof body, "{\"input\":\"more\",\"max_output_tokens\":16,\"previous_response_id\":\"%s\"}", id);
    check_server("GET", path, "host: x\r\nx-api-key: old\r\n", "", 200, id);
    put_text(dir, "keys", "new\n");
    kill(getpid(), SIGHUP);
    usleep(200000);
    check_server("GET", path, "host: x\r\nx-api-key: old\r\n", "", 401, "invalid_api_key");
    check_server("GET", path, "host: x\r\nx-api-key: new\r\n", "", 404, "no response");
    check_server("DELETE", path, "host: x\r\nx-api-key: new\r\n", "", 404, "no response");
    check_server("POST", RESPONSES, "host: x\r\nx-api-key: new\r\n", body, 404, "no response");
    put_text(dir, "keys", "new\nold\n"); /* more keys: still theirs */
    kill(getpid(), SIGHUP);
    usleep(200000);
    check_server("GET", path, "host: x\r\nx-api-key: old\r\n", "", 200, id);
    check_server("POST", RESPONSES, "host: x\r\nauthorization: Bearer old\r\n", body, 200, "resp_");
    remove_dir(dir);
    stop_tiny();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_that_nobody_else_can_have),
        cmocka_unit_test(pages_of_the_server_itself),
        cmocka_unit_test(a_foreign_page_runs_nothing),
        cmocka_unit_test(a_foreign_body_is_not_taken),
        cmocka_unit_test(allowed_by_name),
        cmocka_unit_test(a_key_is_enough),
        cmocka_unit_test(a_new_key_reads_nothing_of_the_old_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
