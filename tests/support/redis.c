#include "redis.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "cache/shared/redis.h"
#include "files.h"

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    EK_ASSERT(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0);
    EK_ASSERT(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    close(fd);
    return ntohs(a.sin_port);
}

/* Debian has the server itself in redis-tools, under the name of a tool that it also is. */
static const char *program(void)
{
    static const char *const names[] = {"redis-server", "valkey-server", "redis-check-rdb"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char command[64];
        snprintf(command, sizeof command, "command -v %s >/dev/null", names[i]);
        if (system(command) == 0) return names[i];
    }
    return NULL;
}

static bool answers(const redis_server *r)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t)r->port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool good = connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return good;
}

void redis_again(redis_server *r, const char *const *option)
{
    char port[16];
    const char *name = program();
    snprintf(port, sizeof port, "%d", r->port);
    const char *arg[32] = {"redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", r->dir};
    for (int n = 9; option && *option; option++) arg[n++] = *option;
    r->pid = fork();
    if (r->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves none behind */
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0), dup2(null, 1), dup2(null, 2);
        execvp(name, (char **)(uintptr_t)arg);
        _exit(127);
    }
    for (double end = ek_now() + 10; !answers(r) && ek_now() < end;) usleep(5000);
    EK_ASSERT(answers(r));
}

bool redis_start(redis_server *r, const char *const *option)
{
    if (!program()) {
        printf("no redis-server here, or no client built in: not run\n");
        return false;
    }
    *r = (redis_server){.port = free_port(), .dir = temp_dir()};
    snprintf(r->url, sizeof r->url, "redis://127.0.0.1:%d", r->port);
    redis_again(r, option);
    return true;
}

void redis_stop(redis_server *r)
{
    if (r->pid > 0) {
        kill(r->pid, SIGKILL);
        waitpid(r->pid, NULL, 0);
    }
    r->pid = 0;
}

void redis_end(redis_server *r)
{
    redis_stop(r);
    remove_dir(r->dir);
}

/* --- commands --- */

static ek_redis *dial(const redis_server *r)
{
    ek_shared_url url;
    ek_redis *c;
    EK_ASSERT(ek_shared_url_parse(&url, r->url) == EK_OK);
    const ek_link_opts o = {.url = &url};
    EK_ASSERT(ek_redis_open(&c, &o, ek_now() + 5) == EK_OK);
    ek_shared_url_fini(&url);
    return c;
}

const char *redis_do(const redis_server *r, const char *command)
{
    static char text[4096];
    char words[4096];
    ek_redis_arg arg[16];
    ek_reply reply;
    int n = 0;
    ek_redis *c = dial(r);
    snprintf(words, sizeof words, "%s", command);
    for (char *at = words, *word; (word = strtok_r(at, " ", &at)) != NULL && n < 16;)
        arg[n++] = (ek_redis_arg){word, strlen(word)};
    EK_ASSERT(ek_redis_send(c, arg, n, ek_now() + 5) == EK_OK);
    EK_ASSERT(ek_redis_read(c, &reply, 1 << 20, ek_now() + 5) == EK_OK);
    if (reply.kind == EK_REPLY_NUMBER) snprintf(text, sizeof text, "%lld", reply.number);
    else snprintf(text, sizeof text, "%s", reply.text ? reply.text : "");
    ek_redis_close(c);
    return text;
}

char *redis_keys(const redis_server *r, const char *begin, int *n)
{
    /* a script gives a text where the command itself gives a list */
    static const char script[] = "return table.concat(redis.call('KEYS', ARGV[1] .. '*'), ' ')";
    ek_redis *c = dial(r);
    ek_reply reply;
    const ek_redis_arg arg[] = {{"EVAL", 4}, {script, strlen(script)}, {"0", 1}, {begin, strlen(begin)}};
    EK_ASSERT(ek_redis_send(c, arg, 4, ek_now() + 5) == EK_OK);
    EK_ASSERT(ek_redis_read(c, &reply, 1 << 24, ek_now() + 5) == EK_OK);
    EK_ASSERT(reply.kind == EK_REPLY_BYTES);
    char *keys = strdup(reply.text);
    *n = *keys ? 1 : 0;
    for (const char *p = keys; (p = strchr(p, ' ')) != NULL; p++) ++*n;
    ek_redis_close(c);
    return keys;
}

unsigned char *redis_get(const redis_server *r, const char *key, size_t *n)
{
    ek_redis *c = dial(r);
    ek_reply reply;
    const ek_redis_arg arg[] = {{"GET", 3}, {key, strlen(key)}};
    EK_ASSERT(ek_redis_send(c, arg, 2, ek_now() + 5) == EK_OK);
    EK_ASSERT(ek_redis_read(c, &reply, 1 << 26, ek_now() + 5) == EK_OK);
    EK_ASSERT(reply.kind == EK_REPLY_BYTES);
    *n = reply.n;
    unsigned char *bytes = (unsigned char *)ek_redis_keep(c);
    ek_redis_close(c);
    return bytes;
}

void redis_set(const redis_server *r, const char *key, const unsigned char *bytes, size_t n)
{
    ek_redis *c = dial(r);
    ek_reply reply;
    const ek_redis_arg arg[] = {{"SET", 3}, {key, strlen(key)}, {bytes, n}};
    EK_ASSERT(ek_redis_send(c, arg, 3, ek_now() + 5) == EK_OK);
    EK_ASSERT(ek_redis_read(c, &reply, 4096, ek_now() + 5) == EK_OK);
    EK_ASSERT(reply.kind == EK_REPLY_STATUS);
    ek_redis_close(c);
}
