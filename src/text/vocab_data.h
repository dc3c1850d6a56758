/* Data of a vocabulary. Inside src/text/vocab.c and grammar_*.c. */
#ifndef EK_TEXT_VOCAB_DATA_H
#define EK_TEXT_VOCAB_DATA_H

#include <pthread.h>

#include "text/grammar_state.h"
#include "text/reply.h"
#include "text/vocab.h"

enum {
    EK_VOCAB_TOKEN = 255, /* longer tokens are never allowed */
    EK_VOCAB_CHARS = 32,  /* longer ones are not in the sets of text */
    EK_VOCAB_WAYS = 8,
    EK_VOCAB_SETS = 32 /* rows in the cache: WAYS * SETS */
};

/* Nodes in preorder; a node's tokens are token[node.token .. next node's token), those of its subtree
 * token[node.token .. node[node.skip].token). */
typedef struct ek_trie_node {
    uint32_t skip; /* the next node outside the subtree */
    uint32_t token;
    uint8_t byte, depth; /* depth: bytes from the root, 1.. */
    uint32_t kinds : 14; /* of characters in the subtree, the node's own included (pattern.h) */
    uint32_t height : 2; /* bytes from the node to its deepest leaf, both included: at most 4 << 2 * height, 3: more */
} ek_trie_node;

typedef struct ek_byte_trie {
    ek_trie_node *node; /* [n_nodes + 1]: the last one ends the lists */
    int32_t *token;
    uint32_t n_nodes, n_tokens;
} ek_byte_trie;

/* What a string's body may hold. */
typedef enum ek_body { EK_BODY_JSON, EK_BODY_GEMMA, EK_BODY_COUNT } ek_body;

typedef struct ek_row_key {
    const ek_grammar *g;         /* with its serial number: an address may come back */
    uint64_t serial, hash, used; /* used: 0: empty; else the time of the latest use */
    int n;
    ek_frame frame[EK_GRAPH_DEPTH];
} ek_row_key;

struct ek_vocab {
    const ek_tokenizer *t;
    ek_marks marks;
    pthread_mutex_t lock;
    bool ready;
    int n_words;                           /* of a row, for the tokenizer's size */
    ek_byte_trie all, rest[EK_BODY_COUNT]; /* rest: tokens that may begin in a body and are not in its sets */
    uint64_t *body[EK_BODY_COUNT];         /* [EK_VOCAB_CHARS + 1] rows: whole characters of a body, at most so many */
    uint64_t *text;                        /* a row: every token that is not special */
    size_t bytes;
    /* the cache */
    ek_row_key *key;
    uint64_t *row; /* [WAYS * SETS] rows */
    uint64_t clock, hits, misses;
    /* scratch of a walk */
    ek_walk walk;
};

static inline void ek_row_set(uint64_t *row, int32_t id)
{
    row[id / 64] |= (uint64_t)1 << id % 64;
}

#endif
