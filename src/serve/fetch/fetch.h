/* Fetches pictures and sounds that requests name by a URL, with libcurl, if the operator allows it (--media-urls).
 *
 * URLs are untrusted. Every address is checked when it is connected to, also after redirects, so that no name and no
 * name server's reply gets around the check. A fetch has at most 10 seconds and EK_MEDIA_MAX_BYTES, and needs an
 * average of 32 KiB a second from the fourth second on, so that slow hosts hold no place for long. It uses no proxy,
 * cookies or credentials of this machine. */
#ifndef EK_SERVE_FETCH_H
#define EK_SERVE_FETCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/err.h"

typedef enum ek_fetch_from {
    EK_FETCH_OFF,
    EK_FETCH_PUBLIC, /* public addresses except this machine's (ek_own_address) */
    EK_FETCH_ALL
} ek_fetch_from;

/* "off", "public" or "all". EINVAL. */
ek_err ek_fetch_parse(ek_fetch_from *out, const char *word);
/* Whether an address is public: not one of loopback, private, shared and local networks, of tests and documentation, or
 * of groups. In IPv6 only global unicast addresses without an embedded address are public. */
bool ek_fetch_is_public(const struct sockaddr *address);

/* The result of a GET of an http(s) URL. */
typedef struct ek_fetched {
    char *url; /* owned */
    ek_buf bytes;
    ek_err err;    /* EK_OK; ENOMEM; or EINVAL: the host is missing or not allowed, the status is not 200, or there were
                      too    many bytes, redirects or seconds */
    char why[160]; /* the sentence of err, without addresses of ours */
} ek_fetched;

/* Zero-initialise; ek_fetches_fini when done. */
typedef struct ek_fetches {
    struct ek_request_memory *memory; /* counts the fetched bytes; NULL: not counted */
    ek_fetched *at;
    int n, n_done; /* the first n_done have been fetched, or failed */
} ek_fetches;

void ek_fetches_add(ek_fetches *f, const char *url, size_t n);
ek_fetched *ek_fetches_find(const ek_fetches *f, const char *url, size_t n); /* NULL without */
/* Fetches all remaining URLs at the same time and waits. Any thread, after ek_curl_load. Ends soon after *dropped is
 * set. */
void ek_fetches_run(ek_fetches *f, ek_fetch_from from, const atomic_bool *dropped);
void ek_fetches_fini(ek_fetches *f);

/* Whether an address belongs to this machine: an address of any interface, up or not; one that the routes deliver here;
 * a broadcast or anycast address of its networks. Asks the system each time, because interfaces change. An IPv4 address
 * within an IPv6 one counts as itself. True also if the system does not tell. An address that a router or a container's
 * host forwards to this machine is not recognised. */
bool ek_own_address(const struct sockaddr *address);

#endif
