/* Where events are published and asked for: what --kv-events and --kv-replay say. Pure. */
#ifndef EK_SERVE_EVENTS_ADDRESS_H
#define EK_SERVE_EVENTS_ADDRESS_H

#include <stdbool.h>

#include "base/address.h"
#include "base/err.h"

enum { EK_EVENTS_HOST_MAX = EK_ADDRESS_HOST };

typedef struct ek_events_address {
    bool bind; /* else it connects */
    bool open; /* it binds on more than this machine's loopback */
    bool v6;
    char endpoint[EK_EVENTS_HOST_MAX + 32]; /* tcp://HOST:PORT; port * for any free one */
} ek_events_address;

/* tcp://HOST:PORT. HOST: a name, an address, an IPv6 address in brackets, or * for all of this machine's. It binds
 * where HOST is * or [::], behind @ (@tcp://127.0.0.1:5557), and if must_bind; else it connects. PORT 0, for one that
 * binds, is any free one. EINVAL: option, value and what is needed in one line. */
ek_err ek_events_address_parse(ek_events_address *out, const char *option, const char *text, bool must_bind);

#endif
