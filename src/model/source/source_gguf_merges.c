/* Merges from the scores of a SentencePiece vocabulary. The tokenizer.json of such a model has them from transformers'
 * generate_merges (tokenization_utils_base.py): every split of a piece into two pieces, ordered by the score of the
 * piece, then by the characters of the left part and of the right one, all descending; equal ones by the piece's id and
 * its parts' ids. The same list gives the same ids for every text.
 *
 * While scores differ, neither another order of one piece's splits nor leaving some of them out would change an id. If
 * two adjacent pieces make a third, no merge has crossed the ends of the third, so its text was merged as if it were
 * alone, and that ends in one split. */
#include "model/source/source_gguf.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"

enum {
    MAX_PIECE = 1024,   /* maximum bytes of a piece that merges make; the work grows with their square */
    ADDED_SCORE = -1000 /* the score that converters give to added tokens */
};

typedef struct piece_index {
    const ek_gguf_vocab *v;
    uint32_t *slot; /* 1 + id; 0: free */
    uint64_t mask;
    size_t max; /* bytes of the longest piece */
} piece_index;

/* Whether the piece can be a part of merges, or their result. */
static bool is_text(const ek_gguf_piece *p)
{
    if (p->n == 0) return false;
    return p->role == EK_PIECE_PLAIN || (p->role == EK_PIECE_ADDED && p->score > ADDED_SCORE);
}

static void fill_index(piece_index *x, const ek_gguf_vocab *v)
{
    uint64_t size = 64;
    while (size < 2 * (uint64_t)v->n) size *= 2;
    *x = (piece_index){.v = v, .slot = ek_alloc(size * sizeof *x->slot), .mask = size - 1};
    for (size_t id = 0; id < v->n; id++) {
        const ek_gguf_piece *p = &v->v[id];
        if (!is_text(p)) continue;
        uint64_t k = ek_hash64(0, p->s, p->n) & x->mask;
        while (x->slot[k]) k = (k + 1) & x->mask;
        x->slot[k] = (uint32_t)id + 1;
        if (p->n > x->max) x->max = p->n;
    }
}

static int64_t find(const piece_index *x, const char *s, size_t n)
{
    if (n > x->max) return -1;
    for (uint64_t k = ek_hash64(0, s, n) & x->mask; x->slot[k]; k = (k + 1) & x->mask) {
        const ek_gguf_piece *p = &x->v->v[x->slot[k] - 1];
        if (p->n == n && memcmp(p->s, s, n) == 0) return (int64_t)x->slot[k] - 1;
    }
    return -1;
}

static size_t count_characters(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

static void add_merge(ek_gguf_merges *m, ek_gguf_merge one)
{
    if (m->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 4096;
        m->v = ek_realloc(m->v, m->cap * sizeof *m->v);
    }
    m->v[m->n++] = one;
}

/* Adds the splits of a piece. Returns whether one of them has only parts that existed before the piece: single
 * characters, or pieces with better scores. */
static bool split(ek_gguf_merges *m, const piece_index *x, uint32_t id, size_t characters)
{
    const ek_gguf_piece *p = &x->v->v[id];
    bool grown = false;
    for (size_t at = 1, left = 1; at < p->n; at++) {
        if (((unsigned char)p->s[at] & 0xc0) == 0x80) continue;
        int64_t l = find(x, p->s, at), r = l < 0 ? -1 : find(x, p->s + at, p->n - at);
        size_t right = characters - left;
        if (r >= 0) {
            add_merge(m, (ek_gguf_merge){.score = p->score,
                                         .left = (uint32_t)l,
                                         .right = (uint32_t)r,
                                         .result = id,
                                         .n_left = (uint16_t)left,
                                         .n_right = (uint16_t)right});
            grown = grown ||
                    ((left == 1 || x->v->v[l].score > p->score) && (right == 1 || x->v->v[r].score > p->score));
        }
        left++;
    }
    return grown;
}

static int by_rank(const void *a, const void *b)
{
    const ek_gguf_merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->n_left != y->n_left) return x->n_left > y->n_left ? -1 : 1;
    if (x->n_right != y->n_right) return x->n_right > y->n_right ? -1 : 1;
    if (x->result != y->result) return x->result < y->result ? -1 : 1;
    return x->left < y->left ? -1 : x->left > y->left;
}

/* Checks that pieces are made of better ones; otherwise the scores are not real: ids, or all equal. A few pieces of a
 * real vocabulary were added by hand. */
static ek_err check_scores(const ek_gguf_vocab *v, size_t made, size_t alone, size_t example)
{
    if (alone * 100 <= made) return EK_OK;
    const ek_gguf_piece *p = &v->v[example];
    return ek_fail(
        EK_EUNSUPPORTED,
        "it has no tokenizer.ggml.merges, and its scores do not say which pieces make which: of %zu that are "
        "made, %zu have no parts of better scores, '%.*s' among them",
        made, alone, p->n < 60 ? (int)p->n : 60, p->s);
}

ek_err ek_gguf_merges_make(ek_gguf_merges *m, const ek_gguf_vocab *v)
{
    piece_index x;
    size_t made = 0, alone = 0, example = 0;
    fill_index(&x, v);
    ek_err err = x.max <= MAX_PIECE
                     ? EK_OK
                     : ek_fail(EK_EFORMAT, "tokenizer.ggml.tokens has a piece of %zu bytes, at most %d can be made",
                               x.max, MAX_PIECE);
    for (size_t id = 0; !err && id < v->n; id++) {
        const ek_gguf_piece *p = &v->v[id];
        size_t characters = is_text(p) ? count_characters(p->s, p->n) : 0;
        if (characters < 2) continue;
        bool grown = split(m, &x, (uint32_t)id, characters);
        if (p->role != EK_PIECE_PLAIN) continue;
        made++;
        if (!grown && !alone++) example = id;
    }
    free(x.slot);
    if (!err) err = check_scores(v, made, alone, example);
    if (m->n) qsort(m->v, m->n, sizeof *m->v, by_rank);
    return err;
}

void ek_gguf_merges_fini(ek_gguf_merges *m)
{
    free(m->v);
}
