#include "engine/sample/ngram.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/hash/rng.h"

static const int order[EK_NGRAM_ORDERS] = {2, 4};

void ek_ngram_init(ek_ngram *g, int max_tokens)
{
    /* Start values, measured on tool calls, chats and random text; the averages adapt within some tokens. */
    *g = (ek_ngram){.bits = 6, .right = {0.3f, 0.6f, 0.8f, 0.9f}};
    while (g->bits < EK_NGRAM_MAX_BITS && 1 << g->bits < max_tokens) g->bits++;
    for (int i = 0; i < EK_NGRAM_ORDERS; i++) g->behind[i] = ek_alloc(sizeof *g->behind[i] << g->bits);
}

void ek_ngram_fini(ek_ngram *g)
{
    for (int i = 0; i < EK_NGRAM_ORDERS; i++) free(g->behind[i]);
    *g = (ek_ngram){0};
}

/* Slots of the n-grams that end before `end`, one per order; the number of orders that are that short. */
static int slots_of(const ek_ngram *g, const int32_t *tokens, int end, uint64_t slot[EK_NGRAM_ORDERS])
{
    uint64_t hash = 0;
    int n = 0;
    for (int i = 0; i < EK_NGRAM_ORDERS && order[i] <= end; i++) {
        const int32_t *t = tokens + end - order[i]; /* each order adds two tokens in front */
        hash = ek_mix64(hash ^ (uint64_t)(uint32_t)t[0] << 32 ^ (uint32_t)t[1]);
        slot[n++] = hash >> (64 - g->bits);
    }
    return n;
}

/* The number of equal tokens before a and before b, a < b. */
static int match_length(const int32_t *tokens, int a, int b)
{
    int n = 0;
    while (n < a && n < EK_NGRAM_MAX_MATCH && tokens[a - 1 - n] == tokens[b - 1 - n]) n++;
    return n;
}

static int bucket(int match)
{
    return match >= 16 ? 3 : match >= 8 ? 2 : match >= 4 ? 1 : 0;
}

static void judge_guess(ek_ngram *g, int32_t token, const int32_t *tokens)
{
    float *right = &g->right[bucket(g->match)];
    *right += ((tokens[g->source] == token ? 1.0f : 0.0f) - *right) / 8;
}

/* Moves the source on by the token, or drops it if the token differs. */
static void follow(ek_ngram *g, const int32_t *tokens, int32_t token)
{
    if (g->source == 0) return;
    if (tokens[g->source] != token) {
        g->source = g->match = 0;
        return;
    }
    g->source++;
    if (g->match < EK_NGRAM_MAX_MATCH) g->match++;
}

/* Looks for a longer match than the source's, from the longest n-gram down. */
static void look_up(ek_ngram *g, const int32_t *tokens, const uint64_t *slot, int n_slots)
{
    for (int i = n_slots - 1; i >= 0 && g->match < 2 * order[i]; i--) {
        int at = g->behind[i][slot[i]], match = at > 0 ? match_length(tokens, at, g->n) : 0;
        if (match < order[i] || match <= g->match) continue; /* another n-gram, or a shorter match */
        g->source = at;
        g->match = match;
        return;
    }
}

void ek_ngram_add(ek_ngram *g, const int32_t *tokens, int n, bool judge)
{
    uint64_t slot[EK_NGRAM_ORDERS];
    while (g->n < n) {
        int32_t token = tokens[g->n];
        if (judge && g->source > 0) judge_guess(g, token, tokens);
        follow(g, tokens, token);
        g->n++;
        int n_slots = slots_of(g, tokens, g->n, slot);
        look_up(g, tokens, slot, n_slots);
        for (int i = 0; i < n_slots; i++) g->behind[i][slot[i]] = g->n;
    }
}

float ek_ngram_right(const ek_ngram *g, int ahead)
{
    return g->source > 0 ? g->right[bucket(g->match + ahead)] : 0;
}

void ek_ngram_guess(const ek_ngram *g, int32_t *tokens, int k)
{
    EK_ASSERT(g->source > 0 && g->source < g->n);
    for (int i = 0; i < k; i++) tokens[g->n + i] = tokens[g->source + i];
}
