/* Data of a vocabulary. Inside src/text/grammar/vocab.c and grammar_*.c. */
#ifndef EK_TEXT_VOCAB_DATA_H
#define EK_TEXT_VOCAB_DATA_H

#include "text/grammar/grammar.h"
#include "text/grammar/grammar_state.h"
#include "text/reply/reply.h"

#include <pthread.h>

/* A cache of rows of allowed tokens: a ring of records, in which the oldest are replaced, and a table that finds them.
 * Most rows are a set that the vocabulary has anyway plus a few tokens, and are stored so; others are stored as they
 * are. Inside src/text; one thread at a time. */

/* The key of a row: the grammar and the frames of a stack, the uppermost first. */
typedef struct ek_row_key {
    char grammar[64]; /* ek_grammar.id */
    uint64_t hash;
    int n;
    ek_frame frame[EK_GRAPH_DEPTH];
} ek_row_key;

typedef struct ek_row_slot {
    uint64_t hash, at; /* at: 1 + the record's position; 0: empty */
} ek_row_slot;

typedef struct ek_rows {
    uint64_t *ring, cap, end; /* in 64-bit words; end: the number of words ever written */
    ek_row_slot *slot;
    int n_words; /* per row */
} ek_rows;

/* Allocates all its memory, for n_rows dense rows of n_words 64-bit words; returns the bytes. */
size_t ek_rows_init(ek_rows *c, int n_words, int n_rows);
void ek_rows_fini(ek_rows *c);

/* A record: borrowed until the next ek_rows_put. */
typedef struct ek_row_record ek_row_record;
const ek_row_record *ek_rows_find(const ek_rows *c, const ek_row_key *key);
/* base: a set whose members are all in row, or NULL; it must outlive the cache. */
const ek_row_record *ek_rows_put(ek_rows *c, const ek_row_key *key, const uint64_t *base, const uint64_t *row);
/* Writes n_words words of the record's row to out, or (join) adds them to out. */
void ek_rows_get(const ek_rows *c, const ek_row_record *r, bool join, int n_words, uint64_t *out);

enum {
    EK_VOCAB_TOKEN = 255, /* longer tokens are never allowed */
    EK_VOCAB_CHARS = 32,  /* longer tokens are not in the sets of text */
    EK_VOCAB_RUN = 16,    /* longer tokens are not in the sets of runs */
    EK_VOCAB_ROWS = 256   /* dense rows for which the cache has room */
};

/* Nodes in preorder. A node's tokens are token[node.token .. next node's token); those of its subtree token[node.token
 * .. node[node.skip].token). */
typedef struct ek_trie_node {
    uint32_t skip; /* the next node outside the subtree */
    uint32_t token;
    uint8_t byte, depth; /* depth: bytes from the root, 1.. */
    uint32_t kinds : 14; /* kinds of characters in the subtree, with the node's own (regex.h) */
    uint32_t height : 2; /* bytes from the node to its deepest leaf, both included: at most 4 << 2 * height; 3: more */
} ek_trie_node;

typedef struct ek_byte_trie {
    ek_trie_node *node; /* [n_nodes + 1]: the last one ends the lists */
    int32_t *token;
    uint32_t n_nodes, n_tokens;
    uint32_t first[257]; /* per byte: the first node at the root with that byte or a later one */
} ek_byte_trie;

/* The allowed contents of a string's body. */
typedef enum ek_body { EK_BODY_JSON, EK_BODY_GEMMA, EK_BODY_COUNT } ek_body;

/* Tokens of one form, such as a blank and small letters: a pattern's result for a kind of characters then holds for all
 * of them. */
typedef struct ek_vocab_run {
    uint16_t kind[3]; /* of the first character, the second, and all further ones */
    uint64_t *set;    /* [EK_VOCAB_RUN + 1] rows: tokens of at most that many characters */
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
    uint64_t *body[EK_BODY_COUNT]; /* [EK_VOCAB_CHARS + 1] rows: whole characters of a body, at most that many */
    uint64_t *text;                /* a row: every token that is not special */
    ek_vocab_run run[EK_RUNS];     /* disjoint */
    ek_byte_trie odd;              /* tokens in no run */
    size_t bytes;
    int longest, opening, closing, commas; /* maximum per token: bytes; { and [; } and ]; commas */
    ek_rows rows;
    uint64_t hits, misses;
    /* Scratch memory of a walk. */
    ek_walk walk;
    uint64_t *made; /* a row */
};

/* In grammar_row.c: writes the row of the stack to v->made. Returns the set of v that is contained in the row and makes
 * up most of it, or NULL. */
const uint64_t *ek_grammar_make_row(ek_vocab *v, int32_t top);
/* In grammar_object.c: the frames under `top` on which the row depends. */
void ek_grammar_key(const ek_vocab *v, const ek_walk *w, int32_t top, ek_row_key *key);
/* The pattern that restricts the next characters; NULL: none, or its match is found. */
const ek_pattern *ek_grammar_pattern(const ek_walk *w, const ek_frame *f);

static inline void ek_row_set(uint64_t *row, int32_t id)
{
    row[id / 64] |= (uint64_t)1 << id % 64;
}

#endif
