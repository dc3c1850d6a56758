#include "base/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/linux.h"

static struct {
    struct sockaddr_un to;
    socklen_t size; /* 0: nobody asks */
    double watchdog;
} supervisor;

static double seconds(const char *usec, const char *pid)
{
    char *end;
    if (!usec || (pid && *pid && (strtoll(pid, &end, 10) != getpid() || *end))) return 0;
    errno = 0;
    const long long n = strtoll(usec, &end, 10);
    return errno || end == usec || *end || n <= 0 ? 0 : (double)n / 1e6;
}

void ek_notify_open(const char *name, const char *watchdog_usec, const char *watchdog_pid)
{
    const size_t n = name ? strlen(name) : 0;
    memset(&supervisor, 0, sizeof supervisor);
    if (n < 2 || n >= sizeof supervisor.to.sun_path || (*name != '/' && *name != '@')) return;
    supervisor.to.sun_family = AF_UNIX;
    memcpy(supervisor.to.sun_path, name, n);
    if (*name == '@') supervisor.to.sun_path[0] = '\0'; /* an abstract name has no NUL after it */
    supervisor.size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (*name == '/'));
    supervisor.watchdog = seconds(watchdog_usec, watchdog_pid);
}

bool ek_notify(const char *lines)
{
    if (!supervisor.size) return true;
    const int fd = ek_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const struct sockaddr *to = (const struct sockaddr *)&supervisor.to;
    ssize_t sent;
    do sent = sendto(fd, lines, strlen(lines), MSG_DONTWAIT | MSG_NOSIGNAL, to, supervisor.size);
    while (sent < 0 && errno == EINTR);
    close(fd);
    return sent >= 0;
}

double ek_notify_watchdog(void)
{
    return supervisor.watchdog;
}
