/* Requests to the Hub: several GETs at a time with libcurl, on the caller's thread.
 *
 * Redirects are followed here, at most 10, over http and https only and never from https to http. The token is sent
 * only to the endpoint's own scheme, host and port. */
#ifndef EK_HUB_CLIENT_H
#define EK_HUB_CLIENT_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* The places of the Hub and its cache, from the environment variables of Hugging Face's own tools. */

typedef struct ek_hub_places {
    char *endpoint;   /* HF_ENDPOINT or https://huggingface.co, without a slash at the end */
    char *cache;      /* HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub */
    char *token;      /* HF_TOKEN, or the content of HF_TOKEN_PATH or HF_HOME/token; NULL: none */
    char *token_from; /* the variable or file of the token, for messages; NULL: none */
    char *ca_file;    /* CURL_CA_BUNDLE, REQUESTS_CA_BUNDLE or SSL_CERT_FILE; NULL: the system's certificates */
    bool offline;     /* HF_HUB_OFFLINE: no request is made */
    double timeout;   /* HF_HUB_DOWNLOAD_TIMEOUT, seconds without a byte; default 30 */
} ek_hub_places;

/* env looks a variable up, like getenv. EINVAL for an endpoint that is not an http address, a token that no header can
 * carry, a timeout that is not a number, and an unknown home folder. Call ek_hub_places_fini also after an error. */
typedef char *ek_hub_env(const char *name);
ek_err ek_hub_places_init(ek_hub_places *p, ek_hub_env *env);
void ek_hub_places_fini(ek_hub_places *p);

typedef enum ek_get_end {
    EK_GET_DONE,    /* a complete reply of 200 or 206 */
    EK_GET_BROKEN,  /* another try may succeed: the connection, 408, 429, 5xx, an error of the host after a redirect */
    EK_GET_REFUSED, /* another status: trying again would not help */
    EK_GET_STOPPED  /* stopped by a callback, or impossible; `why` has the reason */
} ek_get_end;

typedef struct ek_get ek_get;
struct ek_get {
    /* The request. */
    const char *url;  /* borrowed while the request runs */
    int64_t from, to; /* bytes [from, to); to < 0: whole, without a Range header */
    /* Called once before the body of a 200 or 206; body: with its parts. False stops the request; why may be set. */
    bool (*head)(ek_get *g);
    bool (*body)(ek_get *g, const char *data, size_t n);
    void *arg;

    /* The reply. */
    ek_get_end end;
    long status;        /* 0: no reply */
    int64_t range_from; /* of Content-Range; -1: none */
    int64_t range_total;
    double retry_after;   /* seconds; -1: none */
    char error_code[64];  /* X-Error-Code: GatedRepo, RepoNotFound, ... */
    char error_text[256]; /* X-Error-Message */
    char why[512];        /* a clause for people */
    char *reached;  /* the address after the redirects, NULL without redirects; freed by ek_client_start and fini */
    bool foreign;   /* the address that replied is not the endpoint's */
    bool unreached; /* no connection: the host has no address, or does not answer */

    void *easy, *headers, *client; /* libcurl's, while the request runs */
    int hops;
    int64_t moved;   /* bytes of the reply when the last bytes arrived */
    double moved_at; /* and the time of their arrival */
};

typedef struct ek_client ek_client;

/* places is borrowed. ENOMEM, or EINVAL if libcurl cannot do TLS. */
ek_err ek_client_open(ek_client **out, const ek_hub_places *places);
void ek_client_close(ek_client *h); /* after its gets have ended or were cancelled */

ek_err ek_client_start(ek_client *h, ek_get *g); /* g must not move until it ends */
void ek_client_cancel(ek_client *h, ek_get *g);  /* also if it does not run */
/* Works on the requests for at most `seconds`, or until one ends; returns that one, otherwise NULL. */
ek_get *ek_client_wait(ek_client *h, double seconds);
void ek_get_fini(ek_get *g);

/* If line, n bytes, is the header `name`: true, with its value in out, truncated to `room` bytes. */
bool ek_client_header(char *out, size_t room, const char *line, size_t n, const char *name);
/* Seconds in "120", or until an HTTP date; now: seconds since 1970; -1 for anything else. Also the waiting time in the
 * Hub's RateLimit header, `"resolvers";r=0;t=55`. */
double ek_client_retry_after(const char *value, int64_t now);
double ek_client_rate_limit(const char *value);
/* Parses "bytes 5-9/20": true, with the first byte and the size. */
bool ek_client_content_range(const char *value, int64_t *from, int64_t *total);
/* Whether two addresses have the same scheme, host and port. */
bool ek_client_same_origin(const char *a, const char *b);

#endif
