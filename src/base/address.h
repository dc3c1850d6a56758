/* HOST[:PORT] in texts from outside, and the addresses of a host. */
#ifndef EK_BASE_ADDRESS_H
#define EK_BASE_ADDRESS_H

#include <netdb.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { EK_ADDRESS_HOST = 253 /* bytes at most */ };
enum { EK_PORT_NONE = -1, EK_PORT_WRONG = -2 };

typedef struct ek_address {
    const char *host; /* in the text, n_host bytes; of IPv6 without its brackets */
    size_t n_host;
    bool v6;
    int port; /* 0 to 65535; EK_PORT_NONE: no colon; EK_PORT_WRONG: something else behind it */
} ek_address;

/* Of n bytes. A host is a name, an address, one of IPv6 in brackets (with a zone behind %, or without), or * alone.
 * NULL, or what is wrong with the host, in words. */
const char *ek_address_read(ek_address *out, const char *text, size_t n);

/* The number of n digits, at most max; -1: other bytes, none, or more. */
int ek_decimal(const char *s, size_t n, int max);

/* The addresses of a host, with a deadline, which the system's resolver does not know. An address is read here. A name
 * is looked up by a thread of its own, which is left behind where it takes too long; of those at most four, in the
 * whole process. *out: for freeaddrinfo. deadline: of ek_now. stop: NULL, or set: the wait ends at once. EIO, ETIMEOUT
 * or ENOMEM, with the reason. */
ek_err ek_resolve(struct addrinfo **out, const char *host, int port, double deadline, const atomic_bool *stop);

#endif
