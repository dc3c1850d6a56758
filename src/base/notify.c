#include "base/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool ek_notify(const char *lines)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t n = name ? strlen(name) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (*name != '/' && *name != '@')) return true;
    memcpy(to.sun_path, name, n);
    if (*name == '@') to.sun_path[0] = '\0'; /* an abstract name has no NUL behind it */
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (*name == '/'));
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    ssize_t sent;
    do sent = sendto(fd, lines, strlen(lines), MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&to, size);
    while (sent < 0 && errno == EINTR);
    close(fd);
    return sent >= 0;
}

double ek_notify_watchdog(void)
{
    const char *text = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    char *end;
    if (!text || !getenv("NOTIFY_SOCKET")) return 0;
    if (pid && *pid && (strtoll(pid, &end, 10) != getpid() || *end)) return 0;
    errno = 0;
    const long long usec = strtoll(text, &end, 10);
    return errno || end == text || *end || usec <= 0 ? 0 : (double)usec / 1e6;
}
