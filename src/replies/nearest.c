#include "replies/ask.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MAX_COMPARED = 1024 }; /* requests of one prompt */

typedef struct request {
    ek_reply_key key;
    int32_t *tokens;
    int n_tokens;
    const char *identity; /* owned by the list */
    ek_sampling sampling; /* without its bias */
    ek_reply_parts parts;
} request;

struct ek_reply_requests {
    request *at; /* sorted by prompt, then by key */
    size_t n, cap;
    char **identity;
    size_t n_identities;
};

ek_reply_requests *ek_reply_requests_open(void)
{
    return ek_alloc(sizeof(ek_reply_requests));
}

void ek_reply_requests_close(ek_reply_requests *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n; i++) free(r->at[i].tokens);
    for (size_t i = 0; i < r->n_identities; i++) free(r->identity[i]);
    free(r->identity);
    free(r->at);
    free(r);
}

static const char *keep_identity(ek_reply_requests *r, const char *identity)
{
    for (size_t i = r->n_identities; i-- > 0;) /* each section has one identity, and it is most often the last one */
        if (!strcmp(r->identity[i], identity)) return r->identity[i];
    r->identity = ek_realloc(r->identity, (r->n_identities + 1) * sizeof *r->identity);
    return r->identity[r->n_identities++] = ek_strdup(identity);
}

static request borrowed(const ek_reply_ask *ask)
{
    request q = {.tokens = (int32_t *)(uintptr_t)ask->tokens,
                 .n_tokens = ask->n_tokens,
                 .identity = ask->identity,
                 .sampling = *ask->sampling};
    q.sampling.bias = NULL, q.sampling.n_bias = 0;
    ek_reply_parts_of(&q.parts, ask);
    return q;
}

void ek_reply_requests_add(ek_reply_requests *r, const ek_reply_key *key, const ek_reply_ask *ask)
{
    request q = borrowed(ask);
    q.key = *key;
    q.identity = keep_identity(r, ask->identity);
    q.tokens = ek_alloc(((size_t)ask->n_tokens + 1) * sizeof *q.tokens);
    if (ask->n_tokens) memcpy(q.tokens, ask->tokens, (size_t)ask->n_tokens * sizeof *q.tokens);
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 64;
        r->at = ek_realloc(r->at, r->cap * sizeof *r->at);
    }
    r->at[r->n++] = q;
}

/* The number of tokens with which both prompts begin. */
static int common(const request *a, const request *b)
{
    const int n = a->n_tokens < b->n_tokens ? a->n_tokens : b->n_tokens;
    int i = 0;
    while (i < n && a->tokens[i] == b->tokens[i]) i++;
    return i;
}

/* Orders a prompt before the prompts that continue it. */
static int by_prompt(const request *a, const request *b)
{
    const int i = common(a, b);
    if (i < a->n_tokens && i < b->n_tokens) return a->tokens[i] < b->tokens[i] ? -1 : 1;
    return (a->n_tokens > b->n_tokens) - (a->n_tokens < b->n_tokens);
}

static int by_prompt_and_key(const void *a, const void *b)
{
    const request *x = a, *y = b;
    const int order = by_prompt(x, y);
    return order ? order : memcmp(x->key.h, y->key.h, sizeof x->key.h);
}

void ek_reply_requests_sort(ek_reply_requests *r)
{
    if (r->n) qsort(r->at, r->n, sizeof *r->at, by_prompt_and_key);
}

/* --- differences --- */

typedef struct differences {
    ek_buf *out;   /* NULL: differences are only counted */
    int n, unsaid; /* unsaid: values that only one of the two has */
} differences;

__attribute__((format(printf, 2, 3))) static void differ(differences *d, const char *fmt, ...)
{
    char text[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (d->out) ek_buf_fmt(d->out, "%s%s", d->n ? "; " : "", text);
    d->n++;
}

static void compare_number(differences *d, const char *name, double here, double there)
{
    if (here != there) differ(d, "%s is %.9g here and %.9g there", name, here, there);
}

static void compare_sampling(differences *d, const ek_sampling *here, const ek_sampling *there)
{
    const bool draws = here->temperature >= EK_MIN_TEMPERATURE, drew = there->temperature >= EK_MIN_TEMPERATURE;
    enum { OF_A_DRAW = 4 }; /* the next ones */
    if (draws || drew) compare_number(d, "temperature", here->temperature, there->temperature);
    if (draws != drew) d->unsaid += OF_A_DRAW;
    if (draws && drew) {
        compare_number(d, "top_p", here->top_p, there->top_p);
        compare_number(d, "min_p", here->min_p, there->min_p);
        compare_number(d, "top_k", here->top_k, there->top_k);
        if (here->seed != there->seed)
            differ(d, "the seed is %" PRIu64 " here and %" PRIu64 " there", here->seed, there->seed);
    }
    compare_number(d, "repetition_penalty", here->repetition_penalty, there->repetition_penalty);
    compare_number(d, "presence_penalty", here->presence_penalty, there->presence_penalty);
    compare_number(d, "frequency_penalty", here->frequency_penalty, there->frequency_penalty);
}

static bool same(const ek_reply_key *a, const ek_reply_key *b)
{
    return !memcmp(a->h, b->h, sizeof a->h);
}

static int compare(ek_buf *out, const request *here, const request *there)
{
    differences d = {.out = out};
    const int n = common(here, there);
    if (strcmp(here->identity, there->identity) != 0) differ(&d, "it is of %.150s", there->identity);
    if (n < here->n_tokens || n < there->n_tokens)
        differ(&d, "the prompts differ from token %d on (%d here, %d there)", n, here->n_tokens, there->n_tokens);
    if (!same(&here->parts.media, &there->parts.media)) differ(&d, "the pictures or sounds are others");
    compare_sampling(&d, &here->sampling, &there->sampling);
    if (!same(&here->parts.bias, &there->parts.bias)) differ(&d, "the logit_bias is another");
    if (!same(&here->parts.mask, &there->parts.mask))
        differ(&d, "the mask is another (format of the reply, tools, limit of thoughts)");
    return d.n + d.unsaid;
}

/* --- the nearest --- */

/* The first reply whose prompt does not sort before q's. */
static size_t lower_bound(const ek_reply_requests *r, const request *q)
{
    size_t low = 0, high = r->n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (by_prompt(&r->at[mid], q) < 0) low = mid + 1;
        else high = mid;
    }
    return low;
}

void ek_reply_nearest(ek_buf *out, const ek_reply_requests *r, const ek_reply_ask *ask)
{
    char key[EK_REPLY_KEY_TEXT];
    if (r->n == 0) return;
    const request q = borrowed(ask);
    size_t at = lower_bound(r, &q); /* the neighbours share the most tokens with q */
    if (at == r->n || (at > 0 && common(&r->at[at - 1], &q) > common(&r->at[at], &q))) at--;
    at = lower_bound(r, &r->at[at]);
    size_t best = at;
    int fewest = compare(NULL, &q, &r->at[at]);
    for (size_t i = at + 1; i < r->n && i - at < MAX_COMPARED && by_prompt(&r->at[i], &r->at[at]) == 0; i++) {
        const int n = compare(NULL, &q, &r->at[i]);
        if (n < fewest) fewest = n, best = i;
    }
    ek_reply_key_text(key, &r->at[best].key);
    ek_buf_fmt(out, "%s: ", key);
    (void)compare(out, &q, &r->at[best]);
}
