/* What headers of a request ask for: a reply only if its prompt is cached, streams that say how they go on, whose work
 * the reply is. In every API, whole and streamed. */
#include "helper.h"

#include <stdio.h>
#include <stdlib.h>

#include "serve/session.h"

static void preferences_are_read_as_a_list(void **state)
{
    static const struct {
        const char *list;
        bool has;
    } cases[] = {{"if-available", true},
                 {"If-Available", true},
                 {"  if-available  ", true},
                 {"return=minimal, if-available", true},
                 {"if-available;wait=5, x", true},
                 {"if-available ; wait=5", true},
                 {"x=\"a, \\\" b\",if-available", true},
                 {",,if-available", true},
                 {"", false},
                 {",", false},
                 {"return=minimal", false},
                 {"if-available-but-different", false},
                 {"if-available=1", false},
                 {"not-if-available", false},
                 {"x=\"a, if-available\"", false},
                 {"x=\"if-available", false},
                 {"x;if-available", false},
                 {"x=\"\\", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ek_prefers(cases[i].list, "if-available") != cases[i].has) fail_msg("%s", cases[i].list);
}

static ek_server *server;

static ek_buf ask(const char *path, const char *headers, const char *body)
{
    int fd = connect_to(ek_server_port(server));
    ek_buf b = {0};
    ek_buf_fmt(&b, "POST %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n%scontent-length: %zu\r\n\r\n%s", path,
               headers, strlen(body), body);
    send_all(fd, b.data, b.len);
    ek_buf_fini(&b);
    return reply_of(fd);
}

/* The status; the reply has `says`, and has not what begins with "!". */
static void gets(const char *path, const char *headers, const char *body, int status, const char *says)
{
    ek_buf r = ask(path, headers, body);
    int got = 0;
    sscanf(ek_buf_text(&r), "HTTP/1.1 %d ", &got);
    const bool without = *says == '!';
    if (got != status || !strstr(ek_buf_text(&r), says + without) != without)
        fail_msg("%s with %s%s: not %d with %s, but %s", path, headers, body, status, says, ek_buf_text(&r));
    ek_buf_fini(&r);
}

/* A body of this path with 150 tokens of prompt and more, which no other number has; more: further members. */
static const char *body_of(char *out, size_t size, const char *path, int number, const char *more)
{
    char text[1600];
    size_t n = (size_t)snprintf(text, sizeof text, "Number %d.", number);
    for (int i = 0; i < 30; i++) n += (size_t)snprintf(text + n, sizeof text - n, " a wide deck and a deep hold,");
    const char *limit = !strcmp(path, "/v1/responses") ? "max_output_tokens" : "max_tokens";
    if (!strcmp(path, "/v1/completions"))
        snprintf(out, size, "{\"prompt\":\"%s\",\"max_tokens\":2,\"temperature\":0%s}", text, more);
    else if (!strcmp(path, "/v1/responses"))
        snprintf(out, size, "{\"input\":\"%s\",\"%s\":2,\"temperature\":0%s}", text, limit, more);
    else if (!strcmp(path, "/api/chat"))
        snprintf(
            out, size,
            "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"options\":{\"num_predict\":2},"
            "\"stream\":false%s}",
            text, more);
    else
        snprintf(out, size,
                 "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":2,"
                 "\"temperature\":0%s}",
                 text, more);
    return out;
}

/* A body of completions whose prompt is n tokens, those of one number. beside: another prompt, as this writes it with
 * NULL, or "" for none. */
static const char *ids_of(char *out, size_t size, int n, int number, const char *beside)
{
    size_t at = (size_t)snprintf(out, size, beside ? "{\"max_tokens\":1,\"prompt\":%s[" : "[",
                                 beside && *beside ? "[" : "");
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%d", i ? "," : "", 10 + (i * 7 + number * 11) % 40);
    at += (size_t)snprintf(out + at, size - at, "]");
    if (beside && *beside) at += (size_t)snprintf(out + at, size - at, ",%s]", beside);
    if (beside) snprintf(out + at, size - at, "}");
    return out;
}

static const char *const paths[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
                                    "/api/chat"};
enum { N_PATHS = sizeof paths / sizeof *paths };

#define CONDITIONAL "prefer: return=minimal\r\nPrefer: If-Available\r\n"
#define STREAM      ",\"stream\":true"

/* Nothing is computed and the status says so, in a stream as well; afterwards, and for short prompts, it is a request
 * like any other. */
static void only_if_available(void **state)
{
    char body[4096], other[2048];
    (void)state;
    for (int i = 0; i < N_PATHS; i++) {
        const char *p = paths[i];
        for (int s = 0; s < 2; s++) {
            const char *stream = s && strcmp(p, "/api/chat") != 0 ? STREAM : "";
            body_of(body, sizeof body, p, 10 * i + s, stream);
            gets(p, CONDITIONAL, body, 412, "prefer: if-available: ");
            gets(p, CONDITIONAL, body, 412, "\"error\"");
            gets(p, "", body, 200, "!cache_threshold");
            gets(p, CONDITIONAL, body, 200, "!cache_threshold");
        }
        body_of(body, sizeof body, p, 10 * i + 7, "");
        gets(p, "prefer: x=\"if-available\"\r\n", body, 200, "");
    }
    gets("/v1/completions", CONDITIONAL, "{\"prompt\":\"Ahoy\",\"max_tokens\":1}", 200, "");
    gets("/v1/completions", CONDITIONAL, "{\"prompt\":[\"Ahoy\",\"Ahoy\"],\"n\":2,\"max_tokens\":1}", 200, "");
    /* one of several prompts is not there */
    gets("/v1/completions", "", ids_of(body, sizeof body, 130, 1, ""), 200, "");
    gets("/v1/completions", CONDITIONAL, body, 200, "!cache_threshold");
    gets("/v1/completions", CONDITIONAL, ids_of(body, sizeof body, 130, 1, ids_of(other, sizeof other, 130, 2, NULL)),
         412, "prefer: if-available: ");
    /* a whole page, beside the last token, which is always computed */
    gets("/v1/completions", CONDITIONAL, ids_of(body, sizeof body, 65, 3, ""), 412, "of the prompt's 65 tokens");
    gets("/v1/completions", CONDITIONAL, ids_of(body, sizeof body, 64, 3, ""), 200, "!cache_threshold");
    /* what the body asks for counts */
    body_of(body, sizeof body, "/v1/completions", 99, ",\"cache_hit_threshold\":0.01");
    gets("/v1/completions", CONDITIONAL, body, 412, "of the prompt's");
    body_of(body, sizeof body, "/v1/completions", 98, ",\"cache_hit_threshold\":0");
    gets("/v1/completions", CONDITIONAL, body, 200, "!cache_threshold");
}

static void streams_say_how_they_go_on(void **state)
{
    static const char mark[] = "\"resume\":{", wish[] = "x-evenkeel-resume: true\r\n";
    char body[4096];
    (void)state;
    for (int i = 0; i < N_PATHS; i++) {
        const char *p = paths[i];
        if (!strcmp(p, "/api/chat")) continue;
        gets(p, wish, body_of(body, sizeof body, p, 200, STREAM), 200, mark);
        gets(p, "x-evenkeel-resume: FALSE\r\n", body, 200, "!\"resume\"");
        gets(p, wish, body_of(body, sizeof body, p, 200, ""), 200, "!\"resume\"");
        gets(p, wish, body_of(body, sizeof body, p, 200, STREAM ",\"evenkeel\":{\"resume\":false}"), 200,
             "!\"resume\"");
    }
    gets("/api/chat", wish,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"options\":{\"num_predict\":2}}", 200,
         mark);
    /* where there are several replies the header changes nothing; the body's word is refused */
    body_of(body, sizeof body, "/v1/completions", 200, STREAM ",\"n\":2");
    gets("/v1/completions", wish, body, 200, "!\"resume\"");
    body_of(body, sizeof body, "/v1/completions", 200, STREAM ",\"n\":2,\"evenkeel\":{\"resume\":true}");
    gets("/v1/completions", wish, body, 400, "only a stream of one reply");
    body_of(body, sizeof body, "/v1/completions", 200, STREAM);
    gets("/v1/completions", "x-evenkeel-resume: maybe\x01\r\n", body, 400, "");
    gets("/v1/completions", "x-evenkeel-resume: true\r\nX-Evenkeel-Resume: true\r\n", body, 400,
         "x-evenkeel-resume: it is there more than once");
    gets("/v1/completions", "x-evenkeel-resume: maybe\r\n", body, 400,
         "x-evenkeel-resume: true or false is needed, not maybe");
}

static void roles_are_checked(void **state)
{
    char body[4096];
    (void)state;
    body_of(body, sizeof body, "/v1/completions", 300, "");
    gets("/v1/completions", "x-evenkeel-role: prefill\r\n", body, 200, "\"completion_tokens\":2"); /* no shared pages */
    gets("/v1/completions", "x-evenkeel-role: Decode\r\n", body, 200, "\"completion_tokens\":2");
    gets("/v1/completions", "x-evenkeel-role: decode\r\nx-evenkeel-role: prefill\r\n", body, 400,
         "x-evenkeel-role: it is there more than once");
    gets("/v1/completions", "x-evenkeel-role: chef\r\n", body, 400,
         "x-evenkeel-role: prefill, decode or both is needed, not chef");
}

static int open_server(void **state)
{
    (void)state;
    server = start_tiny(4, 16, (ek_server_opts){0});
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preferences_are_read_as_a_list),
        cmocka_unit_test(only_if_available),
        cmocka_unit_test(streams_say_how_they_go_on),
        cmocka_unit_test(roles_are_checked),
    };
    return cmocka_run_group_tests(tests, open_server, close_tiny);
}
