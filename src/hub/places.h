/* Where the Hub and its cache are, from the environment variables that Hugging Face's own tools read. */
#ifndef EK_HUB_PLACES_H
#define EK_HUB_PLACES_H

#include <stdbool.h>

#include "base/err.h"

typedef struct ek_hub_places {
    char *endpoint;   /* HF_ENDPOINT or https://huggingface.co, without a slash at its end */
    char *cache;      /* HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub */
    char *token;      /* HF_TOKEN, or the content of HF_TOKEN_PATH or HF_HOME/token; NULL without */
    char *token_from; /* what the token was read from, for messages; NULL without */
    char *ca_file;    /* CURL_CA_BUNDLE, REQUESTS_CA_BUNDLE or SSL_CERT_FILE; NULL: the system's certificates */
    bool offline;     /* HF_HUB_OFFLINE: no request is made */
    double timeout;   /* HF_HUB_DOWNLOAD_TIMEOUT, seconds without a byte; 30 */
} ek_hub_places;

/* env looks a variable up, like getenv. EINVAL for an endpoint that is no http address, a token that no header can
 * carry, a timeout that is no number, and where no home is known. ek_hub_places_fini also after a failure. */
typedef char *ek_hub_env(const char *name);
ek_err ek_hub_places_init(ek_hub_places *p, ek_hub_env *env);
void ek_hub_places_fini(ek_hub_places *p);

#endif
