#include "helper.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

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
