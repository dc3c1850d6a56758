/* Trees of SHA-256.
 *
 *   rows     of the logits that a token was drawn from: leaf = SHA-256(0 and 128 logits, f32 little-endian; the last
 * one has what is left), node = SHA-256(1 and up to 16 children), up to one root. Named "sha256-128x16". Merkle   over
 * entries (RFC 6962, RFC 9162 2.1): leaf = SHA-256(0, entry), node = SHA-256(1, left, right), the left one with the
 * largest power of two of leaves; no entries: SHA-256 of nothing. An entry is proven to be among n by a path of at most
 * 32 hashes, and a tree of m entries to be the beginning of one of n.
 */
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

/* The root of a row of n logits, n >= 1. pool: tasks of 16 leaves, NULL for the caller's thread alone; it changes
 * nothing of the result. */
void ek_row_root(ek_hash *out, const float *logits, int n, ek_pool *pool);

ek_hash ek_tree_leaf(const void *entry, size_t n);
/* The root over n leaves. */
ek_hash ek_tree_root(const ek_hash *leaf, size_t n);
/* The path of leaf i < n, from its neighbour up; returns the number of hashes. */
int ek_tree_path(ek_hash path[EK_PATH_MAX], const ek_hash *leaf, size_t n, size_t i);
/* Whether the path leads from leaf i of n to root. */
bool ek_tree_has(const ek_hash *root, size_t n, size_t i, const ek_hash *leaf, const ek_hash *path, int n_path);
/* The proof that the first m leaves, m <= n, are those of an older tree; returns the number of hashes. */
int ek_tree_consistency(ek_hash proof[EK_PATH_MAX], const ek_hash *leaf, size_t n, size_t m);
/* Whether the proof leads from the root of m to that of n entries. */
bool ek_tree_extends(const ek_hash *older, size_t m, const ek_hash *newer, size_t n, const ek_hash *proof, int n_proof);

/* A tree that grows by entries and keeps its right edge alone. Zero-initialise. */
typedef struct ek_tree_edge {
    uint64_t n;
    ek_hash at[64]; /* of bit b of n: the root of the 2^b leaves there */
} ek_tree_edge;

void ek_tree_add(ek_tree_edge *t, const ek_hash *leaf);
ek_hash ek_tree_edge_root(const ek_tree_edge *t);

bool ek_hash_equal(const ek_hash *a, const ek_hash *b);
void ek_hash_text(char out[65], const ek_hash *h);
bool ek_hash_read(ek_hash *out, const char *text, size_t n); /* 64 lower-case digits, else false */

#endif
