#include "cache/shared/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef EK_HAVE_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

#include "base/alloc.h"
#include "base/clock.h"
#include "base/linux.h"
#include "base/log.h"
#include "base/address.h"

enum { SLICE = 50 }; /* milliseconds between checks of `stop` */

struct ek_link {
    int fd;
    const atomic_bool *stop;
#ifdef EK_HAVE_TLS
    SSL_CTX *context;
    SSL *tls; /* NULL: TCP alone */
#endif
};

/* Waits until fd can be read (POLLIN) or written (POLLOUT). */
static ek_err wait_for(const ek_link *l, short what, double deadline)
{
    for (;;) {
        struct pollfd p = {.fd = l->fd, .events = what};
        double left = (deadline - ek_now()) * 1000;
        if (l->stop && atomic_load(l->stop)) return ek_fail(EK_ETIMEOUT, "it ends");
        if (left <= 0) return ek_fail(EK_ETIMEOUT, "no answer in time");
        int n = poll(&p, 1, left < SLICE ? (int)left + 1 : SLICE);
        if (n > 0) return EK_OK;
        if (n < 0 && errno != EINTR) return ek_fail(EK_EIO, "%s", strerror(errno));
    }
}

static ek_err connect_to(ek_link *l, const struct addrinfo *a, double deadline)
{
    int on = 1, failed = 0;
    socklen_t size = sizeof failed;
    l->fd = ek_socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0) return ek_fail(EK_EIO, "%s", strerror(errno));
    setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(l->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (connect(l->fd, a->ai_addr, a->ai_addrlen) == 0) return EK_OK;
    if (errno != EINPROGRESS) return ek_fail(EK_EIO, "%s", strerror(errno));
    EK_TRY(wait_for(l, POLLOUT, deadline));
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &failed, &size) || failed)
        return ek_fail(EK_EIO, "%s", strerror(failed));
    return EK_OK;
}

/* Connects to the first of the host's addresses that answers. */
static ek_err connect_any(ek_link *l, const ek_shared_url *url, double deadline)
{
    struct addrinfo *found;
    EK_TRY(ek_resolve(&found, url->host, url->port, deadline, l->stop));
    ek_err err = ek_fail(EK_EIO, "no address");
    for (const struct addrinfo *a = found; a; a = a->ai_next) {
        const double left = deadline - ek_now(); /* leaves half to the other addresses */
        err = connect_to(l, a, a->ai_next ? deadline - left / 2 : deadline);
        if (!err) break;
        if (l->fd >= 0) close(l->fd);
        l->fd = -1;
    }
    freeaddrinfo(found);
    return err;
}

bool ek_link_has_tls(void)
{
#ifdef EK_HAVE_TLS
    return true;
#else
    return false;
#endif
}

#ifdef EK_HAVE_TLS
/* OpenSSL's last error message. */
static ek_err tls_failed(const ek_link *l, const char *doing)
{
    char text[160] = "the connection was closed";
    unsigned long code = ERR_peek_last_error();
    long verified = l->tls ? SSL_get_verify_result(l->tls) : X509_V_OK;
    if (verified != X509_V_OK)
        snprintf(text, sizeof text, "its certificate: %s", X509_verify_cert_error_string(verified));
    else if (code) ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return ek_fail(EK_EIO, "%s: %s", doing, text);
}

/* After a call that returned rc: waits for the socket. EK_OK: repeat the call. */
static ek_err tls_again(const ek_link *l, int rc, const char *doing, double deadline)
{
    switch (SSL_get_error(l->tls, rc)) {
    case SSL_ERROR_WANT_READ: return wait_for(l, POLLIN, deadline);
    case SSL_ERROR_WANT_WRITE: return wait_for(l, POLLOUT, deadline);
    default: return tls_failed(l, doing);
    }
}

static ek_err set_files(const ek_link *l, const ek_link_opts *o)
{
    char shown[EK_PLAIN_NAME];
    if (!o->ca) SSL_CTX_set_default_verify_paths(l->context);
    else if (!SSL_CTX_load_verify_locations(l->context, o->ca, NULL)) return tls_failed(l, ek_plain_name(shown, o->ca));
    if (o->cert && (SSL_CTX_use_certificate_chain_file(l->context, o->cert) != 1 ||
                    SSL_CTX_use_PrivateKey_file(l->context, o->cert, SSL_FILETYPE_PEM) != 1))
        return tls_failed(l, ek_plain_name(shown, o->cert));
    return EK_OK;
}

/* Requires that the certificate is the host's, by name or address. */
static bool expect_host(const ek_link *l, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(l->tls), host) == 1;
    return SSL_set_tlsext_host_name(l->tls, host) == 1 && SSL_set1_host(l->tls, host) == 1;
}

static ek_err start_tls(ek_link *l, const ek_link_opts *o, double deadline)
{
    int rc;
    l->context = SSL_CTX_new(TLS_client_method());
    if (!l->context) return tls_failed(l, "TLS");
    SSL_CTX_set_verify(l->context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_min_proto_version(l->context, TLS1_2_VERSION);
    SSL_CTX_set_mode(l->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    EK_TRY(set_files(l, o));
    l->tls = SSL_new(l->context);
    if (!l->tls || !SSL_set_fd(l->tls, l->fd) || !expect_host(l, o->url->host)) return tls_failed(l, "TLS");
    while ((rc = SSL_connect(l->tls)) != 1) EK_TRY(tls_again(l, rc, "TLS", deadline));
    return EK_OK;
}
#else
static ek_err start_tls(ek_link *l, const ek_link_opts *o, double deadline)
{
    (void)l, (void)o, (void)deadline;
    return ek_fail(EK_EUNSUPPORTED, "this build has no TLS: libssl-dev was not installed when it was built");
}
#endif

ek_err ek_link_open(ek_link **out, const ek_link_opts *o, double deadline)
{
    ek_link *l = ek_alloc(sizeof *l);
    l->fd = -1;
    l->stop = o->stop;
    ek_err err = connect_any(l, o->url, deadline);
    if (!err && o->url->tls) err = start_tls(l, o, deadline);
    if (err) {
        ek_link_close(l);
        return err;
    }
    *out = l;
    return EK_OK;
}

void ek_link_close(ek_link *l)
{
    if (!l) return;
#ifdef EK_HAVE_TLS
    SSL_free(l->tls);
    SSL_CTX_free(l->context);
#endif
    if (l->fd >= 0) close(l->fd);
    free(l);
}

/* One call of send or recv, or of TLS; *moved: the bytes, 0: try again later. */
static ek_err move(ek_link *l, void *bytes, size_t n, size_t *moved, bool out, double deadline)
{
    *moved = 0;
#ifdef EK_HAVE_TLS
    if (l->tls) {
        ERR_clear_error();
        int rc = out ? SSL_write_ex(l->tls, bytes, n, moved) : SSL_read_ex(l->tls, bytes, n, moved);
        return rc == 1 ? EK_OK : tls_again(l, rc, out ? "sending" : "receiving", deadline);
    }
#endif
    ssize_t rc = out ? send(l->fd, bytes, n, MSG_NOSIGNAL) : recv(l->fd, bytes, n, 0);
    if (rc > 0) *moved = (size_t)rc;
    else if (rc == 0) return ek_fail(EK_EIO, "the server closed the connection");
    else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return wait_for(l, out ? POLLOUT : POLLIN, deadline);
    else return ek_fail(EK_EIO, "%s", strerror(errno));
    return EK_OK;
}

ek_err ek_link_send(ek_link *l, const void *bytes, size_t n, double deadline)
{
    uint8_t *at = (uint8_t *)(uintptr_t)bytes; /* read alone */
    for (size_t moved; n > 0; at += moved, n -= moved) {
        if (ek_now() > deadline) return ek_fail(EK_ETIMEOUT, "no answer in time");
        EK_TRY(move(l, at, n, &moved, true, deadline));
    }
    return EK_OK;
}

ek_err ek_link_receive(ek_link *l, void *bytes, size_t room, size_t *got, double deadline)
{
    for (*got = 0; *got == 0;) EK_TRY(move(l, bytes, room, got, false, deadline));
    return EK_OK;
}
