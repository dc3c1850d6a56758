#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/linux.h"
#include "media/locked/child.h"
#include "media/locked/helper_parts.h"
#include "media/locked/lock.h"

#define PROGRAM "evenkeel-decode"

enum { FIRST_WORD = 20000 /* ms in which the helper has to find its libraries, even on a busy machine */ };

/* Beside the program or the library, or in the folders of an installation for programs that nobody calls by hand,
 * relative to PREFIX/bin, PREFIX/lib or PREFIX/lib/TRIPLET. */
static ek_err find(char *path, size_t room)
{
    static const char *const places[] = {"", "../libexec/evenkeel/", "../../libexec/evenkeel/"};
    char self[3072];
    if (ek_own_folder(self, sizeof self))
        return ek_fail_in(EK_EIO, "no " PROGRAM ", which decodes pictures and sounds");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, room, "%s/%s" PROGRAM, self, places[i]);
        if (access(path, X_OK) == 0) return EK_OK;
    }
    return ek_fail(EK_EIO,
                   "no program that decodes pictures and sounds: neither %s/" PROGRAM
                   " nor %s/../libexec/evenkeel/" PROGRAM " can be run",
                   self, self);
}

static void close_fd(int fd)
{
    if (fd >= 0) close(fd);
}

void ek_helper_end(ek_helper *h)
{
    if (!h) return;
    if (h->pid > 0) {
        kill(h->pid, SIGKILL);
        while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    close_fd(h->ask), close_fd(h->control);
    ek_desk_drop(&h->desk);
    free(h);
}

static ek_err greet(ek_helper *h, const char *path)
{
    struct pollfd p = {.fd = h->control, .events = POLLIN};
    int ready;
    while ((ready = poll(&p, 1, FIRST_WORD)) < 0 && errno == EINTR) continue;
    ssize_t n = ready > 0 ? recv(h->control, &h->hello, sizeof h->hello, MSG_WAITALL) : -1;
    if (ready == 0) return ek_fail(EK_EIO, "%s says nothing for %d s", path, FIRST_WORD / 1000);
    if (n != sizeof h->hello) return ek_fail(EK_EIO, "%s ended before it said that it is ready", path);
    h->hello.version[sizeof h->hello.version - 1] = h->hello.formats[sizeof h->hello.formats - 1] = '\0';
    if (strcmp(h->hello.version, EK_VERSION) == 0) return EK_OK;
    return ek_fail(EK_EIO, "%s is of version %s, this program is %s", path, h->hello.version, EK_VERSION);
}

ek_err ek_helper_start(ek_helper **out, int says)
{
    char path[3300];
    int ask[2] = {-1, -1}, control[2] = {-1, -1};
    EK_TRY(ek_lock_check(true));
    EK_TRY(find(path, sizeof path));
    ek_helper *h = ek_alloc(sizeof *h);
    *h = (ek_helper){.pid = -1, .ask = -1, .control = -1, .desk.fd = -1};
    bool good = ek_socketpair(AF_UNIX, EK_ASK_SOCKET | SOCK_CLOEXEC, 0, ask) == 0 &&
                ek_socketpair(AF_UNIX, EK_ASK_SOCKET | SOCK_CLOEXEC, 0, control) == 0;
    h->ask = ask[0], h->control = control[0];
    ek_err err = good ? ek_child_start_helper(&h->pid, path, ask[1], control[1], says)
                      : ek_fail(EK_EIO, "%s cannot be started: no sockets: %s", path, strerror(errno));
    close_fd(ask[1]), close_fd(control[1]);
    if (!err) err = greet(h, path);
    if (err) {
        ek_helper_end(h);
        return err;
    }
    *out = h;
    return EK_OK;
}
