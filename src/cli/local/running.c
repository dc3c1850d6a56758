#include "cli/local/running.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/linux.h"
#include "text/json/json.h"

/* --- their files --- */

enum { MAX_FILE = 16 << 10, MAX_STAT = 4096 };

/* The folder, created if missing. Others may write into /tmp, so an existing folder must belong to this user and be
 * closed to others. */
static ek_err folder(ek_buf *out, bool make)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (runtime && *runtime == '/') ek_buf_fmt(out, "%s/evenkeel", runtime);
    else ek_buf_fmt(out, "/tmp/evenkeel-%d", (int)getuid());
    const char *path = ek_buf_text(out);
    struct stat st;
    if (make && mkdir(path, 0700) && errno != EEXIST) return ek_file_failed(path);
    if (lstat(path, &st)) return ek_fail(EK_ENOTFOUND, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode) || st.st_uid != getuid() || (st.st_mode & 0022))
        return ek_fail(EK_EINVAL, "%s is no folder that this user alone can write to", path);
    return EK_OK;
}

/* The 22nd field of /proc/PID/stat, after the name in brackets, which may contain anything; 0 if the process does not
 * exist or is a zombie. */
static uint64_t start_ticks(int pid)
{
    char path[64];
    ek_buf text = {0};
    uint64_t ticks = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && !ek_fd_read(&text, fd, MAX_STAT)) {
        const char *p = strrchr(ek_buf_text(&text), ')');
        const bool ended = p && (p[2] == 'Z' || p[2] == 'X');
        for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
        if (p && !ended) ticks = strtoull(p + 1, NULL, 10);
    }
    if (fd >= 0) close(fd);
    ek_buf_fini(&text);
    return ticks;
}

bool ek_running_alive(const ek_running *r)
{
    return r->ticks && start_ticks(r->pid) == r->ticks;
}

static char *written; /* the path of this process's file */

ek_err ek_running_write(ek_running *r)
{
    ek_buf path = {0};
    r->pid = (int)getpid();
    r->ticks = start_ticks(r->pid);
    r->started = ek_unix_time();
    ek_err err = folder(&path, true);
    ek_buf_fmt(&path, "/%d.json", r->pid);
    json_t *v = json_pack("{s:i,s:i,s:i,s:I,s:I,s:s,s:s,s:s,s:b}", "pid", r->pid, "port", r->port, "ctx", r->ctx,
                          "ticks", (json_int_t)r->ticks, "started", (json_int_t)r->started, "host", r->host, "model",
                          r->model, "device", r->device, "keys", r->keys);
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    if (!err && !text) err = ek_fail(EK_EIO, "cannot write %s: it is no JSON", ek_buf_text(&path));
    if (!err) err = ek_file_replace(ek_buf_text(&path), text, strlen(text), 0600);
    if (!err) written = ek_strdup(ek_buf_text(&path));
    free(text);
    json_decref(v);
    ek_buf_fini(&path);
    return err;
}

void ek_running_remove(void)
{
    if (written) unlink(written);
    free(written);
    written = NULL;
}

static int int_of(const json_t *v, const char *key)
{
    json_int_t n = json_integer_value(ek_json_get(v, key));
    return n > 0 && n < 1 << 30 ? (int)n : 0;
}

static void text_of(char *out, size_t room, const json_t *v, const char *key)
{
    const char *s = ek_json_get_text(v, key, NULL);
    snprintf(out, room, "%s", s ? s : "");
}

/* Reads the file of one server; false if the file is not such a file. */
static bool read_one(ek_running *r, const char *path, int pid)
{
    json_t *v;
    if (ek_json_read_file(&v, path, MAX_FILE)) return false;
    *r = (ek_running){.pid = pid,
                      .port = int_of(v, "port"),
                      .ctx = int_of(v, "ctx"),
                      .ticks = (uint64_t)json_integer_value(ek_json_get(v, "ticks")),
                      .started = json_integer_value(ek_json_get(v, "started")),
                      .keys = json_is_true(ek_json_get(v, "keys"))};
    text_of(r->host, sizeof r->host, v, "host");
    text_of(r->model, sizeof r->model, v, "model");
    text_of(r->device, sizeof r->device, v, "device");
    bool good = int_of(v, "pid") == pid && r->port > 0 && r->port < 65536 && *r->host;
    json_decref(v);
    return good;
}

static int by_port(const void *a, const void *b)
{
    const ek_running *x = a, *y = b;
    return x->port != y->port ? (x->port > y->port) - (x->port < y->port) : (x->pid > y->pid) - (x->pid < y->pid);
}

ek_running *ek_running_list(int *n)
{
    ek_buf dir = {0}, path = {0};
    ek_running *v = NULL;
    size_t cap = 0, len = 0;
    DIR *d = folder(&dir, false) ? NULL : opendir(ek_buf_text(&dir));
    for (struct dirent *e; d && (e = readdir(d));) {
        char *end;
        long pid = strtol(e->d_name, &end, 10);
        if (!isdigit((unsigned char)e->d_name[0]) || strcmp(end, ".json") != 0 || pid <= 0 || pid > 1 << 30) continue;
        ek_buf_clear(&path);
        ek_buf_fmt(&path, "%s/%s", ek_buf_text(&dir), e->d_name);
        ek_running r;
        bool good = read_one(&r, ek_buf_text(&path), (int)pid);
        if (!good || !ek_running_alive(&r)) {
            unlink(ek_buf_text(&path));
            continue;
        }
        if (len == cap) v = ek_realloc(v, (cap = cap ? 2 * cap : 8) * sizeof *v);
        v[len++] = r;
    }
    if (d) closedir(d);
    if (v) qsort(v, len, sizeof *v, by_port);
    ek_buf_fini(&dir);
    ek_buf_fini(&path);
    *n = (int)len;
    return v;
}

/* --- questions to a server --- */

enum { MAX_REPLY = 1 << 20 };
static const double LIMIT = 0.5; /* seconds for the whole question */

/* The address at which this machine reaches a server that listens on host. A server on every interface is on the
 * loopback interface, too. */
static const char *reach(const char *host)
{
    if (!strcmp(host, "0.0.0.0") || !strcmp(host, "")) return "127.0.0.1";
    return !strcmp(host, "::") ? "::1" : host;
}

void ek_running_url(char *out, int room, const ek_running *r)
{
    const char *host = reach(r->host);
    bool v6 = strchr(host, ':') != NULL;
    snprintf(out, (size_t)room, "http://%s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "", r->port);
}

/* Waits until fd is ready for these events; false at the end of the time. */
static bool wait_for(int fd, short events, double end)
{
    double left = end - ek_now();
    struct pollfd p = {.fd = fd, .events = events};
    return left > 0 && poll(&p, 1, (int)(left * 1000) + 1) > 0;
}

static int connect_to(const ek_running *r, double end)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
    char port[16];
    int fd = -1;
    snprintf(port, sizeof port, "%d", r->port);
    if (getaddrinfo(reach(r->host), port, &hints, &found)) return -1;
    for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = ek_socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        int error = 0;
        socklen_t n = sizeof error;
        bool ok = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ||
                  (errno == EINPROGRESS && wait_for(fd, POLLOUT, end) &&
                   !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) && !error);
        if (!ok) close(fd), fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static bool get(ek_buf *out, const ek_running *r, const char *path)
{
    char ask[128];
    const int asks = snprintf(ask, sizeof ask, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    double end = ek_now() + LIMIT;
    int fd = connect_to(r, end);
    bool ok = fd >= 0 && send(fd, ask, (size_t)asks, MSG_NOSIGNAL) == asks;
    while (ok) {
        char part[8192];
        ssize_t n = wait_for(fd, POLLIN, end) ? recv(fd, part, sizeof part, 0) : -1;
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0 || out->len + (size_t)n > MAX_REPLY) {
            ok = n == 0;
            break;
        }
        ek_buf_add(out, part, (size_t)n);
    }
    if (fd >= 0) close(fd);
    return ok && !strncmp(ek_buf_text(out), "HTTP/1.1 200", 12);
}

static int value_of(const char *text, const char *name)
{
    char line[80];
    int n = snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(text, line);
    return at ? (int)strtod(at + n, NULL) : -1;
}

static double memory_of(int pid)
{
    char path[64];
    ek_buf text = {0};
    double bytes = -1;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && !ek_fd_read(&text, fd, 64 << 10)) {
        const char *at = strstr(ek_buf_text(&text), "\nVmRSS:");
        if (at) bytes = strtod(at + 7, NULL) * 1024;
    }
    if (fd >= 0) close(fd);
    ek_buf_fini(&text);
    return bytes;
}

void ek_running_ask(ek_running_now *now, const ek_running *r)
{
    ek_buf text = {0};
    *now = (ek_running_now){.memory = memory_of(r->pid), .connections = -1, .running = -1, .waiting = -1};
    if (get(&text, r, "/metrics")) {
        const char *t = ek_buf_text(&text);
        int all = value_of(t, "evenkeel_connections"); /* one connection is that of this question */
        now->connections = all > 0 ? all - 1 : all;
        now->running = value_of(t, "evenkeel_requests_running");
        now->waiting = value_of(t, "evenkeel_requests_waiting");
    }
    ek_buf_fini(&text);
}

bool ek_running_ready(const ek_running *r)
{
    ek_buf text = {0};
    const bool ready = get(&text, r, "/ready");
    ek_buf_fini(&text);
    return ready;
}
