/* Trees of SHA-256.
 *
 *   rows     leaf = SHA-256(0, up to 128 logits as f32), node = SHA-256(1, up to 16 children): "sha256-128x16"
 *   Merkle   leaf = SHA-256(0, entry), node = SHA-256(1, left, right); without entries, SHA-256 of nothing
 *
 * A row holds the logits that gave a token, little-endian. In a Merkle tree (RFC 6962, RFC 9162 2.1) the left child has
 * the largest possible power of two of leaves. A path of at most EK_PATH_MAX hashes proves that an entry is among n; a
 * similar proof shows that a tree of n entries begins with a tree of m. */
#ifndef EK_RECEIPTS_TREE_H
#define EK_RECEIPTS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/machine/pool.h"

enum { EK_HASH = 32, EK_PATH_MAX = 64 };
#define EK_ROW_TREE "sha256-128x16"

typedef struct ek_hash {
    uint8_t h[EK_HASH];
} ek_hash;

/* The root of a row of n logits, n >= 1. pool: runs tasks of 16 leaves; NULL: the caller's thread does. The result is
 * the same. */
void ek_row_root(ek_hash *out, const float *logits, int n, ek_pool *pool);

ek_hash ek_tree_leaf(const void *entry, size_t n);
/* The root over n leaves. */
ek_hash ek_tree_root(const ek_hash *leaf, size_t n);
/* A tree that grows. It keeps every complete subtree (64 bytes per leaf), so computing a path takes at most depth^2
 * hashes. Zero-initialise; ek_tree_fini when done. */
typedef struct ek_tree {
    size_t n;
    ek_hash *level[EK_PATH_MAX]; /* [b]: roots of 2^b leaves each */
    size_t count[EK_PATH_MAX], room[EK_PATH_MAX];
} ek_tree;

void ek_tree_grow(ek_tree *t, const ek_hash *leaf);
void ek_tree_fini(ek_tree *t);
ek_hash ek_tree_first(const ek_tree *t, size_t n); /* the root over the first n <= t->n leaves */
/* The path of leaf i in the tree of the first n, i < n, from its neighbour up; returns the number of hashes. */
int ek_tree_path(ek_hash path[EK_PATH_MAX], const ek_tree *t, size_t n, size_t i);
/* Whether the path leads from leaf i of n to root. */
bool ek_tree_has(const ek_hash *root, size_t n, size_t i, const ek_hash *leaf, const ek_hash *path, int n_path);
/* The proof that the tree of the first n leaves begins with the tree of the first m, m <= n; returns the number of
 * hashes. */
int ek_tree_consistency(ek_hash proof[EK_PATH_MAX], const ek_tree *t, size_t n, size_t m);
/* Whether the proof connects the root of m entries with the root of n. */
bool ek_tree_extends(const ek_hash *older, size_t m, const ek_hash *newer, size_t n, const ek_hash *proof, int n_proof);

/* The right edge of a tree, enough to add leaves and give the root. Zero-initialise. */
typedef struct ek_tree_edge {
    uint64_t n;
    ek_hash at[64]; /* [b]: if bit b of n is set, the root of its 2^b leaves */
} ek_tree_edge;

void ek_tree_add(ek_tree_edge *t, const ek_hash *leaf);
ek_hash ek_tree_edge_root(const ek_tree_edge *t);

bool ek_hash_equal(const ek_hash *a, const ek_hash *b);
void ek_hash_text(char out[65], const ek_hash *h);
bool ek_hash_read(ek_hash *out, const char *text, size_t n); /* 64 lower-case digits, else false */

#endif
