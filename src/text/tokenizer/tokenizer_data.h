/* Data structures of a tokenizer, and their look-up. Inside src/text/tokenizer/tokenizer*.c only. */
#ifndef EK_TEXT_TOKENIZER_DATA_H
#define EK_TEXT_TOKENIZER_DATA_H

#include "base/hash/rng.h"
#include "text/tokenizer/tokenizer.h"

#include <string.h>

enum {
    PIECE_VOCAB = 1, /* in the model's vocabulary */
    PIECE_ADDED = 2,
    PIECE_SPECIAL = 4,
    PIECE_BYTE = 8, /* spelled <0xHH>: decodes to a byte */
    ADDED_NORMALIZED = 16,
    ADDED_SINGLE_WORD = 32,
    ADDED_LSTRIP = 64,
    ADDED_RSTRIP = 128
};

typedef struct span {
    uint32_t at, n;
} span;

typedef struct piece {
    span text;  /* in blob: the file's spelling */
    span bytes; /* in blob: the decoded bytes */
    uint8_t flags;
} piece;

/* A byte trie of added tokens: node 0 is the root; children live in one hash table. */
typedef struct trie {
    uint64_t *key; /* (node << 8 | byte) + 1; 0: free */
    uint32_t *child;
    int32_t *id; /* per node: the token that ends here, or -1 */
    uint32_t mask, n_nodes;
    uint8_t first[256]; /* 1 if a token starts with this byte */
} trie;

typedef struct merge {
    uint64_t pair; /* left << 32 | right; EMPTY_PAIR: free */
    uint32_t rank;
    int32_t result;
} merge;

enum { CODES = 128 };
#define EMPTY_PAIR UINT64_MAX
#define NO_RANK    UINT32_MAX

struct ek_tokenizer {
    ek_buf blob;
    piece *pieces;
    int32_t n_ids;

    int32_t *index; /* hash of a piece's text -> id + 1; 0: free */
    uint32_t index_mask;
    merge *merges;
    uint32_t merge_mask, n_merges;
    /* Most look-ups of a merge end in one of two small tables, because the large one misses the caches: a direct table
     * for pairs of common single characters, and a filter that rejects most pairs without a merge. */
    uint8_t *code;           /* per id: from 1 on for a common single character, else 0 */
    merge *first;            /* CODES x CODES */
    uint64_t *filter;        /* one bit per hash of a pair */
    uint32_t filter_mask;    /* of bits */
    int32_t scalar[0x10000]; /* BMP scalar -> id of the piece that is exactly it, or -1 */
    int32_t byte[256];       /* -1: none */
    int32_t unk;             /* -1: none */
    bool byte_fallback, fuse_unk, ignore_merges;

    bool normalizes; /* normalizing replaces `from` by `to` */
    ek_buf from, to;
    ek_buf back_from, back_to; /* decoding replaces back_from by back_to */

    bool cut_space, cut_newline; /* no merge crosses such a boundary */
    trie raw, normal;            /* added tokens by their normalized flag */
};

static inline const char *piece_text(const ek_tokenizer *t, int32_t id)
{
    return ek_buf_text(&t->blob) + t->pieces[id].text.at;
}

/* The piece spelled s[0..n), or -1. */
static inline int32_t find_piece(const ek_tokenizer *t, const char *s, size_t n)
{
    if (!t->index) return -1;
    for (uint32_t i = (uint32_t)ek_hash64(0, s, n) & t->index_mask;; i = (i + 1) & t->index_mask) {
        int32_t id = t->index[i] - 1;
        if (id < 0) return -1;
        if (t->pieces[id].text.n == n && memcmp(piece_text(t, id), s, n) == 0) return id;
    }
}

static inline const merge *search_merge(const ek_tokenizer *t, uint64_t pair, uint64_t hash)
{
    for (uint32_t i = (uint32_t)hash & t->merge_mask;; i = (i + 1) & t->merge_mask) {
        const merge *m = &t->merges[i];
        if (m->pair == pair) return m;
        if (m->pair == EMPTY_PAIR) return NULL;
    }
}

static inline uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The merge of two pieces, or NULL. */
static inline const merge *find_merge(const ek_tokenizer *t, int32_t left, int32_t right)
{
    uint8_t a = t->code[left], b = t->code[right];
    if (a && b) {
        const merge *m = &t->first[a * CODES + b];
        return m->pair == EMPTY_PAIR ? NULL : m;
    }
    uint64_t pair = pair_of(left, right), hash = ek_mix64(pair);
    uint32_t bit = (uint32_t)(hash >> 32) & t->filter_mask;
    if (!(t->filter[bit / 64] >> bit % 64 & 1)) return NULL;
    return search_merge(t, pair, hash);
}

struct ek_cursor;
/* Reads the list of merges at c; the vocabulary of n_vocab pieces is read before. */
ek_err ek_merges_read(ek_tokenizer *t, struct ek_cursor *c, int32_t n_vocab);
/* Fills the two small tables; needs scalar. */
void ek_merges_index(ek_tokenizer *t);

/* Appends s to out with every `from` replaced by `to`. */
void ek_replace_all(ek_buf *out, const char *s, size_t n, const ek_buf *from, const ek_buf *to);

void ek_trie_init(trie *t, size_t n_bytes); /* n_bytes: total length of all tokens to add */
void ek_trie_add(trie *t, const char *s, size_t n, int32_t id);
void ek_trie_fini(trie *t);
/* The longest token at s that ok() accepts: its length and *id; 0 if none. */
size_t ek_trie_longest(const trie *t, const char *s, size_t n, const ek_tokenizer *tok, bool special_too, int32_t *id);

/* --- reading the sections of a tokenizer.json. Every assumption of the encoder is checked: EFORMAT if the file is
 * damaged, EUNSUPPORTED if it needs another algorithm. Inside src/text/tokenizer/tokenizer*.c only. --- */

/* Reads {"piece": id, ...} at c into blob and pieces, whose capacity is *cap; *n_vocab counts the entries. */
ek_err ek_vocab_read(ek_tokenizer *t, ek_cursor *c, int32_t *cap, int32_t *n_vocab);
/* Makes the index of pieces, with room for n_entries; EFORMAT for a text with two ids. */
ek_err ek_vocab_index(ek_tokenizer *t, size_t n_entries);
/* Adds the added tokens and builds their tries; needs the index and the normalizer. */
ek_err ek_added_read(ek_tokenizer *t, const json_t *added, int32_t *cap);
/* Derives the decoded bytes of each piece, the scalars that are pieces, and the boundaries where text may be divided.
 */
void ek_pieces_derive(ek_tokenizer *t);

#endif
