/* Pictures and sounds that requests name by a URL, fetched by libcurl where the operator allows it (--media-urls).
 *
 * What a URL leads to is a stranger's choice: an address is judged when it is connected to, behind every redirect too,
 * so that no name and no reply of a name server gets around it. At most 10 seconds and EK_MEDIA_MAX_BYTES for each,
 * and from the fourth second on at least 32 KiB a second on the average, so that hosts that dawdle hold no place for
 * long; no proxy, no cookies, no credentials of this machine. */
#ifndef EK_SERVE_FETCH_H
#define EK_SERVE_FETCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/err.h"

typedef enum ek_fetch_from {
    EK_FETCH_OFF,
    EK_FETCH_PUBLIC, /* addresses that anybody on the internet could reach, but for this machine's (ek_own_address) */
    EK_FETCH_ALL
} ek_fetch_from;

/* "off", "public" or "all". EINVAL. */
ek_err ek_fetch_parse(ek_fetch_from *out, const char *word);
/* Is it an address of the internet? Not those of this machine, of private, shared and local networks, of tests and
 * documents, of groups; of IPv6 global unicast ones alone, without those that carry another address in them. */
bool ek_fetch_is_public(const struct sockaddr *address);

/* Loads libcurl. ENOTFOUND, EINVAL. One thread, before the others. */
ek_err ek_fetch_open(void);

/* What a GET of one URL, http or https, gives. */
typedef struct ek_fetched {
    char *url; /* owned */
    ek_buf bytes;
    ek_err err; /* EK_OK; ENOMEM; or EINVAL: a host that is not there or not allowed, a status other than 200, too many
                   bytes or redirects, 10 seconds that were not enough, */
    char why[160]; /* and the sentence, which names no address of ours */
} ek_fetched;

/* Zero-initialise; ek_fetches_fini when done. */
typedef struct ek_fetches {
    struct ek_request_memory *memory; /* where their bytes are counted, while they are here; NULL: nowhere */
    ek_fetched *at;
    int n, n_done; /* the first n_done have been fetched, or failed */
} ek_fetches;

void ek_fetches_add(ek_fetches *f, const char *url, size_t n);
ek_fetched *ek_fetches_find(const ek_fetches *f, const char *url, size_t n); /* NULL without */
/* Fetches those that are not done, all at the same time. Waits; any thread. Gives up soon after *dropped is set. */
void ek_fetches_run(ek_fetches *f, ek_fetch_from from, const atomic_bool *dropped);
void ek_fetches_fini(ek_fetches *f);

/* Is an address one of this machine's? The system is asked each time: interfaces come and go. Whether packets to it
 * would stay here: an address of any interface, up or not, or one that the routes deliver here; or go to more than one
 * host: broadcast and anycast addresses of networks that it is in. An IPv4 address in an IPv6 one (::ffff:a.b.c.d, or
 * at the end of any other) is that address. True also where the system does not say. Not known: an address by which a
 * router or the host of a container forwards to this machine. */
bool ek_own_address(const struct sockaddr *address);

#endif
