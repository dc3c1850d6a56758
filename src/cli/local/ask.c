/* The load of a server on this machine: its page /metrics, which needs no key, and its memory in /proc. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/linux.h"
#include "cli/local/running.h"

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
