/* Data of a vocabulary. Inside src/text/grammar/vocab.c and grammar_*.c. */
#ifndef EK_TEXT_VOCAB_DATA_H
#define EK_TEXT_VOCAB_DATA_H

#include "text/grammar/grammar.h"
#include "text/grammar/grammar_state.h"
#include "text/reply/reply.h"

#include <pthread.h>

/* A cache of rows of allowed tokens: a ring of records, in which the oldest make room, and a table that finds them.
 * Most rows are a set that the vocabulary has anyway and a few tokens more, and are kept as that; others as they are.
 * Inside src/text; one thread at a time. */

/* What a row is a function of: the grammar and the frames of a stack, the uppermost first. */
typedef struct ek_row_key {
    char grammar[64]; /* ek_grammar.id */
    uint64_t hash;
    int n;
    ek_frame frame[EK_GRAPH_DEPTH];
} ek_row_key;

typedef struct ek_row_slot {
    uint64_t hash, at; /* at: 1 + where the record was written; 0: empty */
} ek_row_slot;

typedef struct ek_rows {
    uint64_t *ring, cap, end; /* 64-bit words; end: all that were ever written */
    ek_row_slot *slot;
    int n_words; /* of a row */
} ek_rows;

/* Takes all its memory, room for n_rows dense rows of n_words 64-bit words; returns its bytes. */
size_t ek_rows_init(ek_rows *c, int n_words, int n_rows);
void ek_rows_fini(ek_rows *c);

/* A record: borrowed until the next ek_rows_put. */
typedef struct ek_row_record ek_row_record;
const ek_row_record *ek_rows_find(const ek_rows *c, const ek_row_key *key);
/* base: a set of which row has all members, or NULL; it outlives the cache. */
const ek_row_record *ek_rows_put(ek_rows *c, const ek_row_key *key, const uint64_t *base, const uint64_t *row);
/* Writes the record's row into out, n_words words of it, or joins it to what is there. */
void ek_rows_get(const ek_rows *c, const ek_row_record *r, bool join, int n_words, uint64_t *out);

enum {
    EK_VOCAB_TOKEN = 255, /* longer tokens are never allowed */
    EK_VOCAB_CHARS = 32,  /* longer ones are not in the sets of text */
    EK_VOCAB_RUN = 16,    /* nor in those of runs */
    EK_VOCAB_ROWS = 256   /* rows that the cache has room for, if they are dense */
};

/* Nodes in preorder; a node's tokens are token[node.token .. next node's token), those of its subtree
 * token[node.token .. node[node.skip].token). */
typedef struct ek_trie_node {
    uint32_t skip; /* the next node outside the subtree */
    uint32_t token;
    uint8_t byte, depth; /* depth: bytes from the root, 1.. */
    uint32_t kinds : 14; /* of characters in the subtree, the node's own included (regex.h) */
    uint32_t height : 2; /* bytes from the node to its deepest leaf, both included: at most 4 << 2 * height, 3: more */
} ek_trie_node;

typedef struct ek_byte_trie {
    ek_trie_node *node; /* [n_nodes + 1]: the last one ends the lists */
    int32_t *token;
    uint32_t n_nodes, n_tokens;
    uint32_t first[257]; /* of each byte the first node with that byte or a later one at the root */
} ek_byte_trie;

/* What a string's body may hold. */
typedef enum ek_body { EK_BODY_JSON, EK_BODY_GEMMA, EK_BODY_COUNT } ek_body;

/* Tokens of one form, such as a blank and small letters: what a pattern says of a kind of characters then holds for
 * all of them. */
typedef struct ek_vocab_run {
    uint16_t kind[3]; /* of the first character, the second, and all further ones */
    uint64_t *set;    /* [EK_VOCAB_RUN + 1] rows: tokens of at most so many characters */
    ek_byte_trie trie;
} ek_vocab_run;
enum { EK_RUNS = 12 };

struct ek_vocab {
    const ek_tokenizer *t;
    ek_marks marks;
    pthread_mutex_t lock;
    bool ready;
    int n_words;                           /* of a row, for the tokenizer's size */
    ek_byte_trie all, rest[EK_BODY_COUNT]; /* rest: tokens that may begin in a body and are not in its sets */
    uint64_t *body[EK_BODY_COUNT];         /* [EK_VOCAB_CHARS + 1] rows: whole characters of a body, at most so many */
    uint64_t *text;                        /* a row: every token that is not special */
    ek_vocab_run run[EK_RUNS];             /* no token is in two of them */
    ek_byte_trie odd;                      /* tokens that are in none */
    size_t bytes;
    int longest, opening, closing, commas; /* maxima of a token: bytes; { and [; } and ]; commas */
    ek_rows rows;
    uint64_t hits, misses;
    /* scratch of a walk */
    ek_walk walk;
    uint64_t *made; /* a row */
};

/* In vocab.c. A token while tries are built, which are of sorted lists of them. */
typedef struct ek_piece {
    const uint8_t *s;
    uint32_t n;
    int32_t id;
} ek_piece;
int ek_piece_order(const void *x, const void *y);
size_t ek_trie_build(ek_byte_trie *t, const ek_piece *e, uint32_t n); /* returns bytes */
void ek_trie_free(ek_byte_trie *t);
/* In vocab.c. e: every token that is not special, sorted. */
void ek_vocab_build_runs(ek_vocab *v, const ek_piece *e, uint32_t n);
/* In grammar_row.c: the row of the stack into v->made. Returns the set of v that it holds in full and that most of it
 * is, or NULL. */
const uint64_t *ek_grammar_make_row(ek_vocab *v, int32_t top);
/* In grammar_object.c: the frames under `top` as far as the row depends on them. */
void ek_grammar_key(const ek_vocab *v, const ek_walk *w, int32_t top, ek_row_key *key);
/* Whether a pattern has a say in what comes next: not once it has found its match. */
const ek_pattern *ek_grammar_pattern(const ek_walk *w, const ek_frame *f);

static inline void ek_row_set(uint64_t *row, int32_t id)
{
    row[id / 64] |= (uint64_t)1 << id % 64;
}

#endif
