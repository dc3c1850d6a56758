#define _GNU_SOURCE /* strptime */
#include "hub/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "hub/curl.h"

enum { MAX_HOPS = 10 };

static const ek_curl *lib; /* loaded by ek_client_open */

struct ek_client {
    const ek_hub_places *places;
    CURLM *multi;
};

/* ------------------------------------------------------------------ headers */

double ek_client_retry_after(const char *value, int64_t now)
{
    char *end;
    double seconds = strtod(value, &end);
    if (end != value && strspn(end, " \t") == strlen(end)) return seconds >= 0 && seconds < 1e9 ? seconds : -1;
    struct tm tm = {0};
    end = strptime(value, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    if (!end || *end) return -1;
    int64_t at = (int64_t)timegm(&tm);
    return at > now ? (double)(at - now) : 0;
}

double ek_client_rate_limit(const char *value)
{
    const char *left = strstr(value, ";r="), *t = strstr(value, ";t=");
    char *end;
    if (!left || !t || strtol(left + 3, NULL, 10) > 0) return -1;
    double seconds = strtod(t + 3, &end);
    return end != t + 3 && seconds >= 0 && seconds < 1e9 ? seconds : -1;
}

bool ek_client_content_range(const char *value, int64_t *from, int64_t *total)
{
    long long a, b, n;
    if (sscanf(value, "bytes %19lld-%19lld/%19lld", &a, &b, &n) != 3 || a < 0 || b < a || n <= b) return false;
    *from = a;
    *total = n;
    return true;
}

bool ek_client_header(char *out, size_t room, const char *line, size_t n, const char *name)
{
    size_t len = strlen(name);
    if (n <= len || strncasecmp(line, name, len) != 0 || line[len] != ':') return false;
    line += len + 1, n -= len + 1;
    while (n && (*line == ' ' || *line == '\t')) line++, n--;
    while (n && (unsigned char)line[n - 1] <= ' ') n--;
    if (n >= room) n = room - 1;
    memcpy(out, line, n);
    out[n] = '\0';
    return true;
}

static size_t on_header(char *line, size_t one, size_t n, void *arg)
{
    ek_get *g = arg;
    char v[512];
    n *= one;
    if (n > 5 && !strncmp(line, "HTTP/", 5)) { /* after an interim or a proxy's reply */
        g->range_from = g->range_total = -1;
        g->retry_after = -1;
        g->error_code[0] = g->error_text[0] = '\0';
    }
    if (ek_client_header(v, sizeof v, line, n, "Retry-After"))
        g->retry_after = ek_client_retry_after(v, ek_unix_time());
    if (g->retry_after < 0 && ek_client_header(v, sizeof v, line, n, "RateLimit"))
        g->retry_after = ek_client_rate_limit(v);
    if (ek_client_header(v, sizeof v, line, n, "Content-Range"))
        ek_client_content_range(v, &g->range_from, &g->range_total);
    ek_client_header(g->error_code, sizeof g->error_code, line, n, "X-Error-Code");
    ek_client_header(g->error_text, sizeof g->error_text, line, n, "X-Error-Message");
    return n;
}

static size_t on_body(char *data, size_t one, size_t n, void *arg)
{
    ek_get *g = arg;
    n *= one;
    if (!g->status) {
        lib->easy_getinfo(g->easy, CURLINFO_RESPONSE_CODE, &g->status);
        bool good = g->status == 200 || g->status == 206;
        if (good && g->head && !g->head(g)) {
            g->end = EK_GET_STOPPED;
            return 0;
        }
    }
    if (g->status != 200 && g->status != 206) return n; /* an error's text is not used */
    if (g->body(g, data, n)) return n;
    g->end = EK_GET_STOPPED;
    return 0;
}

/* libcurl's own limit applies to the mean of some seconds. Here the request fails only if not one byte arrives in the
 * time. */
static int on_progress(void *arg, curl_off_t all, curl_off_t now, curl_off_t out_all, curl_off_t out)
{
    ek_get *g = arg;
    const ek_client *h = g->client;
    double t = ek_now();
    (void)all, (void)out_all, (void)out;
    if (now != g->moved) g->moved = now, g->moved_at = t;
    if (t - g->moved_at < h->places->timeout) return 0;
    snprintf(g->why, sizeof g->why, "nothing came for %.0f seconds", h->places->timeout);
    return 1;
}

/* ------------------------------------------------------------------ one request */

typedef struct origin {
    bool https;
    const char *host; /* n bytes */
    size_t n;
    long port;
} origin;

/* False for an address without a host, and for an address that programs could read in two ways: names before an @,
 * backslashes. */
static bool find_origin(origin *o, const char *url)
{
    o->https = !strncasecmp(url, "https://", 8);
    if (!o->https && strncasecmp(url, "http://", 7) != 0) return false;
    o->host = url + (o->https ? 8 : 7);
    size_t all = strcspn(o->host, "/?#");
    for (size_t i = 0; i < all; i++)
        if (o->host[i] <= ' ' || o->host[i] > '~' || o->host[i] == '@' || o->host[i] == '\\') return false;
    o->n = all;
    o->port = o->https ? 443 : 80;
    for (size_t i = all; i > 0 && o->host[i - 1] != ']'; i--)
        if (o->host[i - 1] == ':') {
            char *end;
            o->n = i - 1;
            o->port = strtol(o->host + i, &end, 10);
            return o->n > 0 && end == o->host + all && end > o->host + i;
        }
    return o->n > 0;
}

bool ek_client_same_origin(const char *a, const char *b)
{
    origin x, y;
    return find_origin(&x, a) && find_origin(&y, b) && x.https == y.https && x.port == y.port && x.n == y.n &&
           !strncasecmp(x.host, y.host, x.n);
}

static bool is_http(const char *url)
{
    return !strncasecmp(url, "https://", 8) || !strncasecmp(url, "http://", 7);
}

/* Sets the options that depend on the address, because a redirect changes the address. */
static void aim(ek_client *h, ek_get *g, const char *url)
{
    g->moved = -1;
    g->moved_at = ek_now();
    char range[64], header[8300];
    lib->easy_setopt(g->easy, CURLOPT_URL, url);
    g->foreign = !ek_client_same_origin(url, h->places->endpoint);
    lib->slist_free_all(g->headers);
    g->headers = NULL;
    if (h->places->token && !g->foreign) {
        snprintf(header, sizeof header, "Authorization: Bearer %s", h->places->token);
        g->headers = lib->slist_append(NULL, header);
        memset(header, 0, sizeof header);
    }
    lib->easy_setopt(g->easy, CURLOPT_HTTPHEADER, g->headers);
    snprintf(range, sizeof range, "%lld-%lld", (long long)g->from, (long long)g->to - 1);
    lib->easy_setopt(g->easy, CURLOPT_RANGE, g->to < 0 ? NULL : range);
}

static void set_protocols(CURL *easy)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    lib->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    lib->easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

ek_err ek_client_start(ek_client *h, ek_get *g)
{
    g->end = EK_GET_DONE;
    g->status = 0;
    g->range_from = g->range_total = -1;
    g->retry_after = -1;
    g->hops = 0;
    g->unreached = false;
    g->error_code[0] = g->error_text[0] = g->why[0] = '\0';
    free(g->reached);
    g->reached = NULL;
    g->client = h;
    g->easy = lib->easy_init();
    if (!g->easy) return ek_fail(EK_ENOMEM, "libcurl gives no handle");
    set_protocols(g->easy);
    lib->easy_setopt(g->easy, CURLOPT_PRIVATE, g);
    lib->easy_setopt(g->easy, CURLOPT_NOSIGNAL, 1L);
    /* HTTP/2 would put all requests on one connection, which would limit the speed. */
    lib->easy_setopt(g->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    lib->easy_setopt(g->easy, CURLOPT_USERAGENT, "evenkeel/" EK_VERSION);
    lib->easy_setopt(g->easy, CURLOPT_HEADERFUNCTION, on_header);
    lib->easy_setopt(g->easy, CURLOPT_HEADERDATA, g);
    lib->easy_setopt(g->easy, CURLOPT_WRITEFUNCTION, on_body);
    lib->easy_setopt(g->easy, CURLOPT_WRITEDATA, g);
    lib->easy_setopt(g->easy, CURLOPT_BUFFERSIZE, 262144L);
    lib->easy_setopt(g->easy, CURLOPT_CONNECTTIMEOUT, (long)h->places->timeout);
    lib->easy_setopt(g->easy, CURLOPT_NOPROGRESS, 0L);
    lib->easy_setopt(g->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    lib->easy_setopt(g->easy, CURLOPT_XFERINFODATA, g);
    if (h->places->ca_file) lib->easy_setopt(g->easy, CURLOPT_CAINFO, h->places->ca_file);
    aim(h, g, g->url);
    if (lib->multi_add_handle(h->multi, g->easy) == CURLM_OK) return EK_OK;
    ek_client_cancel(h, g);
    return ek_fail(EK_ENOMEM, "libcurl takes no request");
}

void ek_client_cancel(ek_client *h, ek_get *g)
{
    if (!g->easy) return;
    lib->multi_remove_handle(h->multi, g->easy);
    lib->easy_cleanup(g->easy);
    lib->slist_free_all(g->headers);
    g->easy = g->headers = NULL;
}

void ek_get_fini(ek_get *g)
{
    if (g->easy) ek_client_cancel(g->client, g);
    free(g->reached);
    g->reached = NULL;
}

/* --- ends of requests --- */

/* Continues at the address of a redirect. False: there is none, and the request has ended. */
static bool follow(ek_client *h, ek_get *g)
{
    char *to = NULL;
    if (g->status < 300 || g->status > 399) return false;
    lib->easy_getinfo(g->easy, CURLINFO_REDIRECT_URL, &to);
    char *from = NULL;
    lib->easy_getinfo(g->easy, CURLINFO_EFFECTIVE_URL, &from);
    g->end = EK_GET_STOPPED;
    if (!to || !is_http(to)) snprintf(g->why, sizeof g->why, "it redirects to no http address");
    else if (++g->hops > MAX_HOPS) snprintf(g->why, sizeof g->why, "it redirects more than %d times", MAX_HOPS);
    else if (!strncasecmp(from, "https:", 6) && strncasecmp(to, "https:", 6) != 0)
        snprintf(g->why, sizeof g->why, "it redirects from https to http");
    else g->end = EK_GET_DONE;
    if (g->end) return false;
    char *next = ek_strdup(to);
    lib->multi_remove_handle(h->multi, g->easy);
    free(g->reached);
    g->reached = next;
    g->status = 0;
    aim(h, g, next);
    if (lib->multi_add_handle(h->multi, g->easy) == CURLM_OK) return true;
    g->end = EK_GET_STOPPED;
    snprintf(g->why, sizeof g->why, "libcurl takes no request");
    return false;
}

/* Errors of the address or of trust are final. Errors of the network may pass. */
static bool is_final(CURLcode code)
{
    switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_NOT_BUILT_IN: return true;
    default: return false;
    }
}

static void judge(ek_get *g, CURLcode code)
{
    if (g->end == EK_GET_STOPPED) return;
    if (code != CURLE_OK) {
        g->unreached = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
                       code == CURLE_COULDNT_CONNECT;
        g->end = is_final(code) ? EK_GET_STOPPED : EK_GET_BROKEN;
        if (!g->why[0]) snprintf(g->why, sizeof g->why, "%s", lib->easy_strerror(code));
    } else if (g->status == 200 || g->status == 206) {
        g->end = EK_GET_DONE;
    } else {
        bool passing = g->status == 408 || g->status == 429 || g->status >= 500 || (g->foreign && g->status != 416);
        g->end = passing ? EK_GET_BROKEN : EK_GET_REFUSED;
        snprintf(g->why, sizeof g->why, "the answer is status %ld", g->status);
    }
}

static ek_get *next_ended(ek_client *h)
{
    int left;
    for (CURLMsg *m; (m = lib->multi_info_read(h->multi, &left));) {
        if (m->msg != CURLMSG_DONE) continue;
        ek_get *g;
        CURLcode code = m->data.result;
        lib->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &g);
        long before = g->status;
        if (!g->status) lib->easy_getinfo(g->easy, CURLINFO_RESPONSE_CODE, &g->status);
        if (code == CURLE_OK && follow(h, g)) continue;
        if (code == CURLE_OK && !before && (g->status == 200 || g->status == 206) && g->head && !g->head(g))
            g->end = EK_GET_STOPPED; /* an empty body */
        judge(g, code);
        ek_client_cancel(h, g);
        return g;
    }
    return NULL;
}

ek_get *ek_client_wait(ek_client *h, double seconds)
{
    int running;
    lib->multi_perform(h->multi, &running);
    ek_get *g = next_ended(h);
    if (g || seconds <= 0) return g;
    lib->multi_poll(h->multi, NULL, 0, (int)(seconds * 1000), NULL);
    lib->multi_perform(h->multi, &running);
    return next_ended(h);
}

ek_err ek_client_open(ek_client **out, const ek_hub_places *places)
{
    EK_TRY(ek_curl_load());
    lib = ek_curl_lib();
    ek_client *h = ek_alloc(sizeof *h);
    *h = (ek_client){.places = places, .multi = lib->multi_init()};
    if (!h->multi) {
        free(h);
        return ek_fail(EK_ENOMEM, "libcurl gives no handle");
    }
    *out = h;
    return EK_OK;
}

void ek_client_close(ek_client *h)
{
    if (!h) return;
    lib->multi_cleanup(h->multi);
    free(h);
}
