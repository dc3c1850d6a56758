#include "serve/session.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"

/* Where the preference at p ends: at a comma outside of quotes, or at the end. */
static const char *end_of(const char *p)
{
    bool quoted = false;
    for (; *p && (quoted || *p != ','); p++) {
        if (quoted && *p == '\\' && p[1]) p++;
        else if (*p == '"') quoted = !quoted;
    }
    return p;
}

bool ek_prefers(const char *list, const char *token)
{
    const size_t n = strlen(token);
    for (const char *p = list, *end; *p; p = *end ? end + 1 : end) {
        end = end_of(p);
        p += strspn(p, " \t");
        if (strncasecmp(p, token, n) != 0) continue;
        const char *behind = p + n + strspn(p + n, " \t");
        if (behind == end || *behind == ';') return true;
    }
    return false;
}

static ek_err wrong(const char *name, const char *need, const char *value)
{
    char shown[EK_PLAIN_NAME];
    return ek_fail(EK_EINVAL, "%s: %s is needed, not %s", name, need, ek_plain_name(shown, value));
}

static ek_err read_resume(ek_wishes *w, const char *value)
{
    if (!strcasecmp(value, "true")) w->resume = true;
    else if (strcasecmp(value, "false") != 0) return wrong("x-evenkeel-resume", "true or false", value);
    return EK_OK;
}

static ek_err read_role(ek_wishes *w, const char *value)
{
    if (!strcasecmp(value, "prefill")) w->prefill = EK_WISH_YES;
    else if (!strcasecmp(value, "decode") || !strcasecmp(value, "both")) w->prefill = EK_WISH_NO;
    else return wrong("x-evenkeel-role", "prefill, decode or both", value);
    return EK_OK;
}

static ek_err read_batch(ek_wishes *w, const char *value)
{
    static const char word[] = " seed=";
    const size_t n = sizeof w->batch - 1;
    const char *rest = value + n;
    if (strspn(value, "0123456789abcdef") != n) return wrong("x-evenkeel-batch", "24 hex digits[ seed=N]", value);
    memcpy(w->batch, value, n);
    if (!*rest) return EK_OK;
    char *end = NULL;
    const bool named = !strncmp(rest, word, sizeof word - 1) && isdigit((unsigned char)rest[sizeof word - 1]);
    errno = 0;
    if (named) w->seed = strtoull(rest + sizeof word - 1, &end, 10);
    if (!named || *end || errno || w->seed >> 53)
        return wrong("x-evenkeel-batch", "24 hex digits[ seed=N], N below 2^53,", value);
    w->has_seed = true;
    return EK_OK;
}

/* *value: NULL without the header. Two would contradict each other, or be one too many. */
static ek_err find_one(const char **value, const ek_exchange *x, const char *name)
{
    *value = ek_exchange_find(x, name);
    return ek_exchange_find_nth(x, name, 1) ? ek_fail(EK_EINVAL, "%s: it is there more than once", name) : EK_OK;
}

ek_err ek_wishes_read(ek_wishes *out, const ek_exchange *x)
{
    const char *resume, *role, *batch;
    *out = (ek_wishes){0};
    EK_TRY(find_one(&resume, x, "x-evenkeel-resume"));
    EK_TRY(find_one(&role, x, "x-evenkeel-role"));
    if (resume) EK_TRY(read_resume(out, resume));
    if (role) EK_TRY(read_role(out, role));
    EK_TRY(find_one(&batch, x, "x-evenkeel-batch"));
    if (batch) EK_TRY(read_batch(out, batch));
    const char *trace = ek_exchange_find(x, "traceparent");
    if (trace && !ek_exchange_find_nth(x, "traceparent", 1)) (void)ek_http_trace(out->trace, trace);
    for (int i = 0;; i++) {
        const char *cache = ek_exchange_find_nth(x, "cache-control", i);
        if (!cache) break;
        out->no_store |= ek_prefers(cache, "no-store");
        out->no_cache |= ek_prefers(cache, "no-cache");
        out->only_cached |= ek_prefers(cache, "only-if-cached");
    }
    for (int i = 0; !out->if_available; i++) {
        const char *prefer = ek_exchange_find_nth(x, "prefer", i);
        if (!prefer) break;
        out->if_available = ek_prefers(prefer, "if-available");
    }
    return EK_OK;
}
