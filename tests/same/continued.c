/* Replies that go on: what another engine sampled is given behind the prompt, cut anywhere, and the rest is compared.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "cases.h"

enum { MAX_ROWS = 1500, LATER = 100000 };

/* The request, behind the first n tokens of its reply: logits of all positions from the prompt's last one on. */
static ek_ask behind(const ek_ask *a, const ek_trace *want, int n, int32_t *tokens)
{
    ek_ask rest = *a;
    memcpy(tokens, a->tokens, sizeof *tokens * (size_t)a->n_tokens);
    memcpy(tokens + a->n_tokens, want->reply, sizeof *tokens * (size_t)n);
    rest.tokens = tokens;
    rest.n_tokens = a->n_tokens + n;
    rest.n_replied = n;
    if (rest.prompt_logits_from == a->n_tokens) rest.prompt_logits_from--;
    return rest;
}

ek_err continued(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    int which[MAX_ASKS], n = 0, rows = 0;
    int32_t *tokens[MAX_ASKS] = {0};
    for (int i = 0; i < s->n && n + 2 <= MAX_ASKS; i++) {
        const ek_ask *a = &s->ask[i];
        const ek_trace *want = &base->want[i];
        const uint64_t r = ek_mix64(s->seed + 31 * (uint64_t)i);
        rows += 2 * (a->n_tokens + a->max_tokens);
        if (want->n_reply < 2 || (rows > MAX_ROWS && n > 0)) continue;
        tokens[n] = ek_alloc(sizeof **tokens * (size_t)(a->n_tokens + a->max_tokens));
        tokens[n + 1] = ek_alloc(sizeof **tokens * (size_t)(a->n_tokens + a->max_tokens));
        /* as if elsewhere, and behind pages that the first one left */
        for (int round = 0; round < 2; round++, n++) {
            ask[n] = behind(a, want, 1 + (int)((r >> 8 * round) % (uint64_t)(want->n_reply - 1)), tokens[n]);
            ask[n].arrive = round * LATER + (int)((r >> 32) % 9);
            if (round) ask[n].prompt_logits_from = ask[n].n_tokens;
            which[n] = i;
        }
    }
    company c = {.max_requests = 6, .chunk = 5 + (int)(ek_mix64(s->seed) % 90), .draft = EK_DRAFT_NGRAM};
    ek_err err = n ? run_cached(s, base, c, "cut replies", ask, which, n, check, arg) : EK_OK;
    for (int i = 0; i < n; i++) free(tokens[i]);
    return err;
}
