/* HOST[:PORT] in text from outside, and the addresses of a host. */
#ifndef EK_BASE_ADDRESS_H
#define EK_BASE_ADDRESS_H

#include <netdb.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { EK_ADDRESS_HOST = 253 /* maximum bytes */ };
enum { EK_PORT_NONE = -1, EK_PORT_WRONG = -2 };

typedef struct ek_address {
    const char *host; /* points into the text, n_host bytes; IPv6 without its brackets */
    size_t n_host;
    bool v6;
    int port; /* 0 to 65535; EK_PORT_NONE: no colon; EK_PORT_WRONG: no port after the colon */
} ek_address;

/* Parses n bytes. A host is a name, an address, an IPv6 address in brackets (with or without a zone after %), or *.
 * Returns NULL, or the fault of the host in words. */
const char *ek_address_read(ek_address *out, const char *text, size_t n);

/* The number that n digits form; -1 if there is another byte, no digit, or a number above max. */
int ek_decimal(const char *s, size_t n, int max);

/* Looks up the addresses of a host with a deadline, which the system's resolver lacks. An address is parsed at once. A
 * name is looked up on a thread of its own, which is abandoned when it takes too long; the process has at most four
 * such threads. *out: free it with freeaddrinfo. deadline: by ek_now. stop: NULL, or a flag that ends the wait at once.
 * EIO, ETIMEOUT or ENOMEM, with the reason. */
ek_err ek_resolve(struct addrinfo **out, const char *host, int port, double deadline, const atomic_bool *stop);

#endif
