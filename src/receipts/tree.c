#include "receipts/tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "base/err.h"
#include "base/hash/hash.h"

bool ek_hash_equal(const ek_hash *a, const ek_hash *b)
{
    return memcmp(a->h, b->h, EK_HASH) == 0;
}

void ek_hash_text(char out[65], const ek_hash *h)
{
    ek_hex(out, h->h, EK_HASH);
}

bool ek_hash_read(ek_hash *out, const char *text, size_t n)
{
    if (n != 2 * EK_HASH) return false;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        out->h[i / 2] = (uint8_t)(i % 2 ? out->h[i / 2] | digit : digit << 4);
    }
    return true;
}

/* --- rows --- */

enum {
    LEAF = 128,
    CHILDREN = 16,
    GROUPS_MAX = 1 << 11,
    WORTH_WAKING = 1 << 14
}; /* a task hashes the leaves of one node: 2,048 logits */

typedef struct row {
    const float *logits;
    int n;
    ek_hash *node; /* a hash for each group of 16 leaves */
} row;

static ek_hash node_of(const ek_hash *child, int n)
{
    uint8_t bytes[1 + CHILDREN * EK_HASH] = {1};
    ek_hash out;
    memcpy(bytes + 1, child, (size_t)n * EK_HASH);
    ek_sha256(out.h, bytes, 1 + (size_t)n * EK_HASH);
    return out;
}

/* Writes a leaf's bytes: a 0 and the logits from `at` on. Returns their number. */
static size_t put_leaf(uint8_t out[1 + LEAF * sizeof(float)], const row *r, int at)
{
    const int left = r->n - at < LEAF ? r->n - at : LEAF;
    out[0] = 0;
    memcpy(out + 1, r->logits + at, (size_t)left * sizeof(float)); /* all supported machines are little-endian */
    return 1 + (size_t)left * sizeof(float);
}

static void hash_group(void *arg, int task, int worker)
{
    const row *r = arg;
    ek_hash leaf[CHILDREN];
    uint8_t a[1 + LEAF * sizeof(float)], b[sizeof a];
    int n = 0;
    (void)worker;
    for (int at = task * LEAF * CHILDREN; at < r->n && n < CHILDREN;) {
        const size_t size = put_leaf(a, r, at);
        if (n + 1 < CHILDREN && at + 2 * LEAF <= r->n) {
            put_leaf(b, r, at + LEAF);
            ek_sha256_two(leaf[n].h, leaf[n + 1].h, a, b, size);
            n += 2, at += 2 * LEAF;
        } else {
            ek_sha256(leaf[n++].h, a, size);
            at += LEAF;
        }
    }
    r->node[task] = n > 1 || r->n > LEAF * CHILDREN ? node_of(leaf, n) : leaf[0];
}

void ek_row_root(ek_hash *out, const float *logits, int n, ek_pool *pool)
{
    ek_hash node[GROUPS_MAX];
    const row r = {logits, n, node};
    int count = (n + LEAF * CHILDREN - 1) / (LEAF * CHILDREN);
    EK_ASSERT(n > 0 && count <= GROUPS_MAX);
    ek_pool_run(n >= WORTH_WAKING ? pool : NULL, hash_group, (void *)(uintptr_t)&r, count);
    while (count > 1) {
        const int above = (count + CHILDREN - 1) / CHILDREN;
        for (int i = 0; i < above; i++) {
            const int first = i * CHILDREN, left = count - first < CHILDREN ? count - first : CHILDREN;
            node[i] = node_of(node + first, left);
        }
        count = above;
    }
    *out = node[0];
}

/* --- Merkle --- */

ek_hash ek_tree_leaf(const void *entry, size_t n)
{
    static const uint8_t zero = 0;
    ek_sha256_state s;
    ek_hash out;
    ek_sha256_init(&s);
    ek_sha256_add(&s, &zero, 1);
    ek_sha256_add(&s, entry, n);
    ek_sha256_end_bytes(&s, out.h);
    return out;
}

static ek_hash join(const ek_hash *left, const ek_hash *right)
{
    const ek_hash both[2] = {*left, *right};
    return node_of(both, 2);
}

/* The largest power of two below n >= 2. */
static size_t left_of(size_t n)
{
    size_t k = 1;
    while (2 * k < n) k *= 2;
    return k;
}

ek_hash ek_tree_root(const ek_hash *leaf, size_t n)
{
    ek_tree_edge t = {0};
    for (size_t i = 0; i < n; i++) ek_tree_add(&t, &leaf[i]);
    return ek_tree_edge_root(&t);
}

void ek_tree_add(ek_tree_edge *t, const ek_hash *leaf)
{
    ek_hash h = *leaf;
    int b = 0;
    for (; t->n >> b & 1; b++) h = join(&t->at[b], &h);
    t->at[b] = h;
    t->n++;
}

ek_hash ek_tree_edge_root(const ek_tree_edge *t)
{
    ek_hash h;
    bool any = false;
    if (t->n == 0) ek_sha256(h.h, "", 0);
    for (int b = 0; b < 64; b++) {
        if (!(t->n >> b & 1)) continue;
        h = any ? join(&t->at[b], &h) : t->at[b];
        any = true;
    }
    return h;
}

void ek_tree_grow(ek_tree *t, const ek_hash *leaf)
{
    ek_hash h = *leaf;
    for (int b = 0;; b++) {
        if (t->count[b] == t->room[b]) {
            t->room[b] = t->room[b] ? 2 * t->room[b] : 4;
            t->level[b] = ek_realloc(t->level[b], t->room[b] * sizeof *t->level[b]);
        }
        t->level[b][t->count[b]++] = h;
        if (t->count[b] % 2) break;
        h = join(&t->level[b][t->count[b] - 2], &t->level[b][t->count[b] - 1]);
    }
    t->n++;
}

void ek_tree_fini(ek_tree *t)
{
    for (int b = 0; b < EK_PATH_MAX; b++) free(t->level[b]);
    *t = (ek_tree){0};
}

/* The root over leaves [at, at + n). at is a multiple of the smallest power of two that is not below n. */
static ek_hash range_root(const ek_tree *t, size_t at, size_t n)
{
    if ((n & (n - 1)) == 0) {
        int b = 0;
        while ((size_t)1 << b < n) b++;
        return t->level[b][at >> b];
    }
    const size_t k = left_of(n);
    const ek_hash left = range_root(t, at, k), right = range_root(t, at + k, n - k);
    return join(&left, &right);
}

ek_hash ek_tree_first(const ek_tree *t, size_t n)
{
    return n > 0 ? range_root(t, 0, n) : ek_tree_root(NULL, 0);
}

static int path_in(ek_hash path[EK_PATH_MAX], const ek_tree *t, size_t at, size_t n, size_t i)
{
    if (n < 2) return 0;
    const size_t k = left_of(n);
    const int m = i < k ? path_in(path, t, at, k, i) : path_in(path, t, at + k, n - k, i - k);
    path[m] = i < k ? range_root(t, at + k, n - k) : range_root(t, at, k);
    return m + 1;
}

int ek_tree_path(ek_hash path[EK_PATH_MAX], const ek_tree *t, size_t n, size_t i)
{
    return path_in(path, t, 0, n, i);
}

/* RFC 9162 2.1.3.2 */
bool ek_tree_has(const ek_hash *root, size_t n, size_t i, const ek_hash *leaf, const ek_hash *path, int n_path)
{
    size_t fn = i, sn = n - 1;
    ek_hash h = *leaf;
    if (i >= n) return false;
    for (int p = 0; p < n_path; p++) {
        if (sn == 0) return false;
        if (fn & 1 || fn == sn) {
            h = join(&path[p], &h);
            for (; !(fn & 1) && fn != 0; fn >>= 1) sn >>= 1;
        } else {
            h = join(&h, &path[p]);
        }
        fn >>= 1, sn >>= 1;
    }
    return sn == 0 && ek_hash_equal(&h, root);
}

/* RFC 9162 2.1.4.1. whole: the older tree is the whole subtree of these leaves. */
static int subproof(ek_hash *proof, const ek_tree *t, size_t at, size_t n, size_t m, bool whole)
{
    if (m == n) {
        if (whole) return 0;
        proof[0] = range_root(t, at, n);
        return 1;
    }
    const size_t k = left_of(n);
    int p;
    if (m <= k) {
        p = subproof(proof, t, at, k, m, whole);
        proof[p] = range_root(t, at + k, n - k);
    } else {
        p = subproof(proof, t, at + k, n - k, m - k, false);
        proof[p] = range_root(t, at, k);
    }
    return p + 1;
}

int ek_tree_consistency(ek_hash proof[EK_PATH_MAX], const ek_tree *t, size_t n, size_t m)
{
    return m == 0 || m == n ? 0 : subproof(proof, t, 0, n, m, true);
}

/* RFC 9162 2.1.4.2 */
bool ek_tree_extends(const ek_hash *older, size_t m, const ek_hash *newer, size_t n, const ek_hash *proof, int n_proof)
{
    const ek_hash empty = ek_tree_root(NULL, 0);
    if (m > n) return false;
    if (m == 0) return n_proof == 0 && ek_hash_equal(older, &empty);
    if (m == n) return n_proof == 0 && ek_hash_equal(older, newer);
    const bool power = (m & (m - 1)) == 0;
    if (n_proof < (power ? 0 : 1)) return false;
    size_t fn = m - 1, sn = n - 1;
    int p = 0;
    for (; fn & 1; fn >>= 1) sn >>= 1;
    ek_hash fr = power ? *older : proof[p++], sr = fr;
    for (; p < n_proof; p++) {
        if (sn == 0) return false;
        if (fn & 1 || fn == sn) {
            fr = join(&proof[p], &fr);
            sr = join(&proof[p], &sr);
            for (; !(fn & 1) && fn != 0; fn >>= 1) sn >>= 1;
        } else {
            sr = join(&sr, &proof[p]);
        }
        fn >>= 1, sn >>= 1;
    }
    return sn == 0 && ek_hash_equal(&fr, older) && ek_hash_equal(&sr, newer);
}
