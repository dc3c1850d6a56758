#include "text/grammar/vocab_data.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { SLOTS = 1 << 14, WAYS = 8 };
enum { DENSE = -1 };

/* Followed by the frames, then by the row: the tokens that `base` lacks, or all words. */
struct ek_row_record {
    char grammar[64];
    const uint64_t *base;
    int32_t n_frames, n_tokens; /* n_tokens: DENSE: the row itself */
    ek_frame frame[];
};

size_t ek_rows_init(ek_rows *c, int n_words, int n_rows)
{
    size_t largest = sizeof(ek_row_record) / 8 + sizeof(ek_frame) / 8 * EK_GRAPH_DEPTH + (size_t)n_words;
    *c = (ek_rows){.n_words = n_words, .cap = largest * (size_t)n_rows};
    c->ring = ek_alloc(sizeof *c->ring * c->cap);
    c->slot = ek_alloc(sizeof *c->slot * SLOTS);
    return sizeof *c->ring * c->cap + sizeof *c->slot * SLOTS;
}

void ek_rows_fini(ek_rows *c)
{
    free(c->ring);
    free(c->slot);
}

static const ek_row_record *record_at(const ek_rows *c, uint64_t at)
{
    return (const ek_row_record *)(c->ring + (at - 1) % c->cap);
}

/* Whether the record was not overwritten. */
static bool is_whole(const ek_rows *c, const ek_row_slot *s)
{
    return s->at > 0 && c->end - (s->at - 1) <= c->cap;
}

static bool is_of(const ek_row_record *r, const ek_row_key *key)
{
    return r->n_frames == key->n && !memcmp(r->grammar, key->grammar, sizeof r->grammar) &&
           !memcmp(r->frame, key->frame, sizeof *r->frame * (size_t)key->n);
}

const ek_row_record *ek_rows_find(const ek_rows *c, const ek_row_key *key)
{
    for (uint64_t i = 0; i < WAYS; i++) {
        const ek_row_slot *s = &c->slot[(key->hash + i) % SLOTS];
        if (s->hash == key->hash && is_whole(c, s) && is_of(record_at(c, s->at), key)) return record_at(c, s->at);
    }
    return NULL;
}

/* The tokens of row that base lacks; DENSE if they take more room than the row. */
static int differences(const uint64_t *base, const uint64_t *row, int n_words, int32_t *out)
{
    int n = 0;
    for (int w = 0; w < n_words; w++) {
        uint64_t bits = row[w] & ~(base ? base[w] : 0);
        if (!bits) continue;
        if (n + 64 > 2 * n_words) return DENSE;
        for (; bits; bits &= bits - 1) out[n++] = w * 64 + __builtin_ctzll(bits);
    }
    return n;
}

const ek_row_record *ek_rows_put(ek_rows *c, const ek_row_key *key, const uint64_t *base, const uint64_t *row)
{
    uint64_t head = (sizeof(ek_row_record) + sizeof(ek_frame) * (size_t)key->n) / 8, max = head + (uint64_t)c->n_words;
    if (c->end % c->cap + max > c->cap) c->end += c->cap - c->end % c->cap;
    ek_row_slot *slot = NULL;
    for (uint64_t i = 0; i < WAYS; i++) {
        ek_row_slot *s = &c->slot[(key->hash + i) % SLOTS];
        if (!slot || s->at < slot->at) slot = s;
    }
    *slot = (ek_row_slot){key->hash, c->end + 1};
    ek_row_record *r = (ek_row_record *)(c->ring + c->end % c->cap);
    memcpy(r->grammar, key->grammar, sizeof r->grammar);
    r->base = base;
    r->n_frames = key->n;
    memcpy(r->frame, key->frame, sizeof *r->frame * (size_t)key->n);
    void *rest = &r->frame[key->n];
    r->n_tokens = differences(base, row, c->n_words, rest);
    if (r->n_tokens == DENSE) memcpy(rest, row, sizeof *row * (size_t)c->n_words);
    c->end += head + (r->n_tokens == DENSE ? (uint64_t)c->n_words : ((uint64_t)r->n_tokens + 1) / 2);
    return r;
}

void ek_rows_get(const ek_rows *c, const ek_row_record *r, bool join, int n_words, uint64_t *out)
{
    size_t words = (size_t)(n_words < c->n_words ? n_words : c->n_words);
    const int32_t *token = (const int32_t *)(const void *)&r->frame[r->n_frames];
    const uint64_t *set = r->n_tokens == DENSE ? (const uint64_t *)(const void *)token : r->base;
    if (!join && set) memcpy(out, set, sizeof *out * words);
    if (!join && !set) memset(out, 0, sizeof *out * words);
    for (size_t w = 0; join && set && w < words; w++) out[w] |= set[w];
    for (int i = 0; i < r->n_tokens; i++)
        if ((size_t)token[i] / 64 < words) out[token[i] / 64] |= (uint64_t)1 << token[i] % 64;
}
