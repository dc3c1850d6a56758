#include "serve/page/page.h"

#include <stdio.h>
#include <string.h>

#include "base/hash/rng.h"

/* Nothing from elsewhere, nothing inline, no frame around it. No text becomes HTML, and none the address of a script
 * but by the policy that is named last: the page's own, for the address of its worker. Sounds play from bytes that
 * the page has. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types evenkeel";

static const ek_page_file *find(const char *path)
{
    for (int i = 0; i < ek_n_page_files; i++)
        if (!strcmp(ek_page_files[i].path, path)) return &ek_page_files[i];
    return NULL;
}

/* Whether the header, a list of tags or "*", has tag; W/ before a tag changes nothing for GET. */
static bool has_tag(const char *header, const char *tag)
{
    return header && (strstr(header, tag) || !strcmp(header, "*"));
}

bool ek_page_answer(ek_exchange *x)
{
    const ek_page_file *f = find(ek_exchange_path(x));
    const char *method = ek_exchange_method(x);
    if (!*ek_exchange_path(x) && *ek_exchange_prefix(x)) { /* without the slash the page's references would miss it */
        char to[EK_HTTP_MAX_PREFIX + 2];
        snprintf(to, sizeof to, "%s/", ek_exchange_prefix(x));
        ek_exchange_header(x, "location", to);
        ek_exchange_reply(x, 308, "text/plain; charset=utf-8", "", 0);
        return true;
    }
    if (!f) return false;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        static const char text[] = "this is a page: GET or HEAD\n";
        ek_exchange_header(x, "allow", "GET, HEAD");
        ek_exchange_reply(x, 405, "text/plain; charset=utf-8", text, sizeof text - 1);
        return true;
    }
    char tag[24];
    size_t n = (size_t)(f->end - f->data);
    snprintf(tag, sizeof tag, "\"%016llx\"", (unsigned long long)ek_hash64(0, f->data, n));
    ek_exchange_header(x, "etag", tag);
    ek_exchange_header(x, "cache-control", "no-cache"); /* kept, but asked for again: a new build shows at once */
    ek_exchange_header(x, "content-security-policy", policy);
    ek_exchange_header(x, "x-content-type-options", "nosniff");
    ek_exchange_header(x, "x-frame-options", "DENY");
    ek_exchange_header(x, "referrer-policy", "no-referrer");
    ek_exchange_header(x, "cross-origin-opener-policy", "same-origin");
    if (has_tag(ek_exchange_find(x, "if-none-match"), tag)) ek_exchange_reply(x, 304, f->type, "", 0);
    else ek_exchange_reply_from(x, 200, f->type, &(ek_outgoing){.part[0] = {f->data, n}});
    return true;
}
