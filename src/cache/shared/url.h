/* Where pages are shared: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]. Inside src/cache/shared, and for who checks an
 * option. */
#ifndef EK_CACHE_SHARED_URL_H
#define EK_CACHE_SHARED_URL_H

#include <stdbool.h>

#include "base/err.h"

enum { EK_SHARED_PORT = 6379, EK_SHARED_TEXT = 400 };

typedef struct ek_shared_url {
    bool tls;
    char *host; /* a name or an address, that of IPv6 without brackets */
    int port, db;
    char *user, *password; /* decoded; NULL: none. No user without a password */
} ek_shared_url;

/* redis and valkey, or rediss and valkeys for TLS. USER and PASSWORD may hold %XX for bytes that would end them. EINVAL
 * says what is wrong with it, and shows nothing in front of the last @. out is
 * empty then. */
ek_err ek_shared_url_parse(ek_shared_url *out, const char *text);
void ek_shared_url_fini(ek_shared_url *u); /* a zeroed one is allowed */

/* For logs: without the password. Returns out. */
const char *ek_shared_url_text(const ek_shared_url *u, char out[EK_SHARED_TEXT]);

#endif
