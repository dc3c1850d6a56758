/* Tokens by the kinds of their characters: words with and without a blank, numbers, other scripts. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"
#include "text/grammar/vocab_data.h"

enum { SMALL = 1 << 0 | 1 << 1, LARGE = 1 << 2 | 1 << 3, DIGIT = 1 << 4, BLANK = 1 << 8, FOREIGN = 1 << 12 };

/* A token belongs to the first that it fits. */
static const uint16_t kinds[EK_RUNS][3] = {
    {SMALL, SMALL, SMALL},
    {BLANK, SMALL, SMALL},
    {LARGE, SMALL, SMALL},
    {BLANK, LARGE, SMALL},
    {LARGE, LARGE, LARGE},
    {DIGIT, DIGIT, DIGIT},
    {FOREIGN, FOREIGN, FOREIGN},
    {BLANK, FOREIGN, FOREIGN},
    {SMALL | LARGE, SMALL | LARGE, SMALL | LARGE},
    {BLANK, SMALL | LARGE, SMALL | LARGE},
    {SMALL | LARGE | FOREIGN, SMALL | LARGE | FOREIGN, SMALL | LARGE | FOREIGN},
    {BLANK, SMALL | LARGE | FOREIGN, SMALL | LARGE | FOREIGN},
};

/* The characters' kinds, at most EK_VOCAB_RUN of them; 0 if there are more, or if some are bytes only. */
static uint32_t read_kinds(const ek_piece *e, int *kind)
{
    uint32_t chars = 0;
    for (uint32_t i = 0; i < e->n; chars++) {
        uint32_t cp;
        int len = ek_utf8_next((const char *)e->s + i, e->n - i, &cp);
        if (len < 0 || chars == EK_VOCAB_RUN) return 0;
        kind[chars] = ek_chars_kind(0, e->s[i], 0);
        i += (uint32_t)len;
    }
    return chars;
}

static int run_of(const int *kind, uint32_t chars)
{
    for (int r = 0; r < EK_RUNS; r++) {
        uint32_t i = 0;
        while (i < chars && kind[i] & kinds[r][i < 2 ? i : 2]) i++;
        if (i == chars) return r;
    }
    return EK_RUNS;
}

void ek_vocab_build_runs(ek_vocab *v, const ek_piece *e, uint32_t n)
{
    size_t words = (size_t)v->n_words, bytes = sizeof *v->made * words * (EK_VOCAB_RUN + 1);
    uint8_t *where = ek_alloc((size_t)n + 1);
    ek_piece *some = ek_alloc(sizeof *some * ((size_t)n + 1));
    for (int r = 0; r < EK_RUNS; r++) {
        v->run[r].set = ek_alloc(bytes);
        memcpy(v->run[r].kind, kinds[r], sizeof kinds[r]);
    }
    for (uint32_t i = 0; i < n; i++) {
        int kind[EK_VOCAB_RUN];
        uint32_t chars = read_kinds(&e[i], kind);
        where[i] = (uint8_t)(chars > 0 ? run_of(kind, chars) : EK_RUNS);
        if (where[i] < EK_RUNS) ek_row_set(v->run[where[i]].set + chars * words, e[i].id);
    }
    for (int r = 0; r <= EK_RUNS; r++) {
        uint32_t n_some = 0;
        for (uint32_t i = 0; i < n; i++)
            if (where[i] == r) some[n_some++] = e[i];
        v->bytes += ek_trie_build(r < EK_RUNS ? &v->run[r].trie : &v->odd, some, n_some);
        for (size_t w = words; r < EK_RUNS && w < words * (EK_VOCAB_RUN + 1); w++)
            v->run[r].set[w] |= v->run[r].set[w - words];
    }
    v->bytes += bytes * EK_RUNS;
    free(some);
    free(where);
}
