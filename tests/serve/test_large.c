/* Replies that a worker writes: they are whole, their clients may leave at any time, and nothing stays counted. */
#include "helper.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash/rng.h"
#include "serve/server_state.h"

static ek_server *server;

#define ASKED "\"temperature\":1,\"seed\":1,\"logit_bias\":{\"1\":-100,\"106\":-100},"

static const struct {
    const char *path, *body;
    const char *has; /* this often at least */
    int times;
    const char *ends;
} rows[] = {
    {"/v1/chat/completions",
     "{" ASKED "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"n\":4,\"max_tokens\":60,\"ignore_eos\":true,"
     "\"logprobs\":true,\"top_logprobs\":20}",
     "\"logprob\":", 4 * 60 * 20, "}"},
    {"/v1/completions",
     "{" ASKED
     "\"prompt\":[\"one two three four five six seven eight nine ten eleven twelve\",\"a b c d e f g h i j k l m "
     "n o p q r s t u v w x y z\"],\"max_tokens\":60,\"n\":2,\"ignore_eos\":true,\"echo\":true,\"logprobs\":20}",
     "\"finish_reason\":\"length\"", 4, "}"},
    {"/v1/completions",
     "{" ASKED
     "\"stream\":true,\"prompt\":\"one two three four five six seven eight nine ten eleven twelve a b c d e f g h i j "
     "k l m n o p q r s t u v w x y z one two three four five six seven eight nine ten eleven twelve\",\"max_tokens\":20,"
     "\"n\":3,\"ignore_eos\":true,\"echo\":true,\"logprobs\":20}",
     "\"finish_reason\":\"length\"", 3, "data: [DONE]\n\n\r\n0\r\n\r\n"},
    {"/v1/responses",
     "{" ASKED
     "\"stream\":true,\"input\":\"hi\",\"max_output_tokens\":100,\"top_logprobs\":20,\"include\":[\"message.output_"
     "text.logprobs\"]}",
     "\"type\":\"response.incomplete\"", 1, "\n\n\r\n0\r\n\r\n"},
    {"/v1/tokenize", "{\"content\":\"a b c d e f g h\",\"with_pieces\":true}", "\"piece\":", 8, "}"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static int count(const ek_buf *b, const char *what)
{
    int n = 0;
    for (const char *p = ek_buf_text(b); (p = strstr(p, what)) != NULL; p++) n++;
    return n;
}

static void await_idle(void)
{
    for (int i = 0; atomic_load(&server->memory.used) > 0; i++) {
        if (i > 15000) fail_msg("%zu bytes are still counted", (size_t)atomic_load(&server->memory.used));
        usleep(1000);
    }
}

static void they_are_whole(void **state)
{
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        ek_buf b = reply_of(post_to(ek_server_port(server), rows[i].path, rows[i].body));
        size_t n = strlen(rows[i].ends);
        if (strncmp(ek_buf_text(&b), "HTTP/1.1 200 ", 13) != 0 || count(&b, rows[i].has) < rows[i].times ||
            strcmp(b.data + b.len - n, rows[i].ends) != 0)
            fail_msg("row %d: %d times %s in %.400s", i, count(&b, rows[i].has), rows[i].has, ek_buf_text(&b));
        ek_buf_fini(&b);
        await_idle();
    }
}

static void clients_leave(void **state)
{
    (void)state;
    enum { ROUNDS = 12 };
    for (uint64_t round = 0; round < ROUNDS; round++) {
        int fd[N_ROWS];
        for (int i = 0; i < N_ROWS; i++) fd[i] = post_to(ek_server_port(server), rows[i].path, rows[i].body);
        for (int i = 0; i < N_ROWS; i++) {
            struct linger reset = {1, 0};
            usleep((useconds_t)(ek_mix64(round * N_ROWS + (uint64_t)i) % 40000));
            setsockopt(fd[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
            close(fd[i]);
        }
    }
    await_idle();
}

/* The answer is 503 where there is no memory for the reply's text, and everything else goes on. */
static void there_is_no_memory(void **state)
{
    (void)state;
    size_t total = server->memory.total;
    server->memory.total = 700 << 10;
    ek_buf b = reply_of(post_to(ek_server_port(server), rows[0].path, rows[0].body));
    assert_memory_equal(b.data, "HTTP/1.1 ", 9);
    int status = atoi(b.data + 9);
    if (status != 503 && status != 413) fail_msg("%.300s", b.data);
    ek_buf_fini(&b);
    await_idle();
    server->memory.total = total;
    they_are_whole(state);
}

static int open_all(void **state)
{
    (void)state;
    server = start_tiny(8, 64, (ek_server_opts){0});
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(they_are_whole), cmocka_unit_test(clients_leave),
                                       cmocka_unit_test(there_is_no_memory)};
    return cmocka_run_group_tests(tests, open_all, close_tiny);
}
