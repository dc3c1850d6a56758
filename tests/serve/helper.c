#include "helper.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static ek_server *server;
static pthread_t thread;

static void *serve(void *arg)
{
    (void)arg;
    return (void *)(uintptr_t)ek_server_run(server);
}

ek_server *start_server(ek_engine *engine, const ek_server_opts *opts)
{
    ek_server_opts o = *opts;
    o.http = (ek_http_opts){.host = "127.0.0.1",
                            .max_connections = 16,
                            .max_body = opts->http.max_body,
                            .max_unsent = 1 << 20,
                            .body_timeout = 10,
                            .idle_timeout = 10};
    assert_int_equal(ek_server_open(&server, engine, &o), EK_OK);
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    return server;
}

void stop_server(void)
{
    void *err;
    kill(getpid(), SIGTERM);
    pthread_join(thread, &err);
    assert_null(err);
    ek_server_close(server);
}

int post_to(int port, const char *path, const char *body)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    ek_buf b = {0};
    ek_buf_fmt(&b, "POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %zu\r\n\r\n%s", path,
               strlen(body), body);
    assert_int_equal(write(fd, b.data, b.len), b.len);
    ek_buf_fini(&b);
    return fd;
}

ek_buf reply_of(int fd)
{
    ek_buf b = {0};
    char part[4096];
    for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;) ek_buf_add(&b, part, (size_t)n);
    close(fd);
    return b;
}
