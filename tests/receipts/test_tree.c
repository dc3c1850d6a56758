/* Trees of rows and Merkle trees, beside definitions written here once more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/hash.h"
#include "base/hash/rng.h"
#include "receipts/commit.h"

/* --- rows: the definition, over lists --- */

static ek_hash plain_root(const float *x, int n)
{
    int count = 0;
    ek_hash *level = ek_alloc(((size_t)n / 128 + 2) * sizeof *level);
    for (int at = 0; at < n; at += 128) {
        uint8_t b[1 + 512] = {0};
        const int k = n - at < 128 ? n - at : 128;
        memcpy(b + 1, x + at, 4 * (size_t)k);
        ek_sha256(level[count++].h, b, 1 + 4 * (size_t)k);
    }
    while (count > 1) {
        int above = 0;
        for (int at = 0; at < count; at += 16) {
            uint8_t b[1 + 512] = {1};
            const int k = count - at < 16 ? count - at : 16;
            memcpy(b + 1, &level[at], 32 * (size_t)k);
            ek_hash h;
            ek_sha256(h.h, b, 1 + 32 * (size_t)k);
            level[above++] = h;
        }
        count = above;
    }
    const ek_hash root = level[0];
    free(level);
    return root;
}

static void the_root_of_a_row_is_its_definition(void **state)
{
    static const int sizes[] = {1, 127, 128, 129, 2047, 2048, 2049, 2176, 4096, 32768, 262144, 262145, 262208};
    float *x = ek_alloc(262208 * sizeof *x);
    ek_pool *pool;
    (void)state;
    assert_int_equal(ek_pool_open(&pool, 3), EK_OK);
    for (int i = 0; i < 262208; i++) x[i] = (float)(ek_mix64((uint64_t)i) >> 40) / 1e5f;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int n = sizes[i];
        ek_hash alone, shared, want = plain_root(x, n);
        ek_row_root(&alone, x, n, NULL);
        ek_row_root(&shared, x, n, pool);
        assert_true(ek_hash_equal(&alone, &want));
        assert_true(ek_hash_equal(&shared, &want));
        for (int k = 0; k < 20; k++) { /* one bit anywhere */
            const int at = (int)(ek_mix64((uint64_t)(n + k)) % (uint64_t)n);
            uint32_t bits;
            memcpy(&bits, &x[at], 4);
            bits ^= 1u << k;
            memcpy(&x[at], &bits, 4);
            ek_row_root(&alone, x, n, pool);
            assert_false(ek_hash_equal(&alone, &want));
            bits ^= 1u << k;
            memcpy(&x[at], &bits, 4);
        }
    }
    ek_pool_close(pool);
    free(x);
}

/* --- Merkle: RFC 9162 2.1.1, by recursion --- */

static ek_hash plain_tree(const ek_hash *leaf, size_t n)
{
    ek_hash out;
    uint8_t b[65] = {1};
    size_t k = 1;
    if (n == 0) {
        ek_sha256(out.h, NULL, 0);
        return out;
    }
    if (n == 1) return leaf[0];
    while (2 * k < n) k *= 2;
    const ek_hash left = plain_tree(leaf, k), right = plain_tree(leaf + k, n - k);
    memcpy(b + 1, left.h, 32);
    memcpy(b + 33, right.h, 32);
    ek_sha256(out.h, b, sizeof b);
    return out;
}

enum { MAX = 70 };

static int path_of(ek_hash path[EK_PATH_MAX], const ek_hash *leaf, size_t n, size_t i)
{
    ek_tree t = {0};
    for (size_t k = 0; k < n; k++) ek_tree_grow(&t, &leaf[k]);
    for (size_t k = 0; k <= n; k++) {
        const ek_hash first = ek_tree_first(&t, k), want = plain_tree(leaf, k);
        assert_true(ek_hash_equal(&first, &want));
    }
    const int m = ek_tree_path(path, &t, n, i);
    ek_tree_fini(&t);
    return m;
}

static int consistency_of(ek_hash proof[EK_PATH_MAX], const ek_hash *leaf, size_t n, size_t m)
{
    ek_tree t = {0};
    for (size_t k = 0; k < n; k++) ek_tree_grow(&t, &leaf[k]);
    ek_tree_grow(&t, &leaf[0]); /* one more: proofs are of any size that the tree had */
    const int p = ek_tree_consistency(proof, &t, n, m);
    ek_tree_fini(&t);
    return p;
}

static void make_leaves(ek_hash leaf[MAX])
{
    for (size_t i = 0; i < MAX; i++) leaf[i] = ek_tree_leaf(&i, sizeof i);
}

static void every_entry_has_a_path(void **state)
{
    ek_hash leaf[MAX], path[EK_PATH_MAX];
    (void)state;
    make_leaves(leaf);
    for (size_t n = 0; n < MAX; n++) {
        const ek_hash root = ek_tree_root(leaf, n), want = plain_tree(leaf, n);
        assert_true(ek_hash_equal(&root, &want));
        for (size_t i = 0; i < n; i++) {
            const int m = path_of(path, leaf, n, i);
            assert_true(ek_tree_has(&root, n, i, &leaf[i], path, m));
            assert_false(ek_tree_has(&root, n, i, &leaf[(i + 1) % MAX], path, m));
            if (n > 1) assert_false(ek_tree_has(&root, n, (i + 1) % n, &leaf[i], path, m));
            assert_false(ek_tree_has(&root, n, n, &leaf[i], path, m));
            if (m > 0) {
                assert_false(ek_tree_has(&root, n, i, &leaf[i], path, m - 1));
                path[m / 2].h[3] ^= 16;
                assert_false(ek_tree_has(&root, n, i, &leaf[i], path, m));
            }
        }
    }
}

static void a_log_that_was_changed_has_no_proof(void **state)
{
    ek_hash leaf[MAX], proof[EK_PATH_MAX];
    (void)state;
    make_leaves(leaf);
    for (size_t n = 0; n < MAX; n++)
        for (size_t m = 0; m <= n; m++) {
            const ek_hash older = plain_tree(leaf, m), newer = plain_tree(leaf, n);
            const int k = consistency_of(proof, leaf, n, m);
            assert_true(ek_tree_extends(&older, m, &newer, n, proof, k));
            if (m == 0) continue;
            ek_hash changed[MAX]; /* an entry of the older one was rewritten, dropped, or is there twice */
            memcpy(changed, leaf, sizeof changed);
            changed[m / 2].h[0] ^= 1;
            ek_hash other = plain_tree(changed, n);
            int c = consistency_of(proof, changed, n, m);
            assert_false(ek_tree_extends(&older, m, &other, n, proof, c));
            if (n == m) continue;
            memcpy(changed, leaf, sizeof changed);
            memmove(&changed[0], &changed[1], (MAX - 1) * sizeof *changed);
            other = plain_tree(changed, n - 1);
            c = consistency_of(proof, changed, n - 1, m);
            assert_false(ek_tree_extends(&older, m, &other, n - 1, proof, c));
            memcpy(changed, leaf, sizeof changed);
            memmove(&changed[1], &changed[0], (MAX - 1) * sizeof *changed);
            other = plain_tree(changed, n);
            c = consistency_of(proof, changed, n, m);
            if (m > 1) assert_false(ek_tree_extends(&older, m, &other, n, proof, c));
        }
}

/* The tree of RFC 6962 tools, over the entries "", 00, 10, 2021: roots of certificate-transparency's own tests. */
static void the_roots_of_certificate_transparency(void **state)
{
    static const char *const want[] = {"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                                       "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
                                       "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
                                       "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
                                       "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"};
    static const uint8_t entry[] = {0x00, 0x10, 0x20, 0x21};
    ek_hash leaf[4];
    char text[65];
    (void)state;
    leaf[0] = ek_tree_leaf("", 0);
    leaf[1] = ek_tree_leaf(entry, 1);
    leaf[2] = ek_tree_leaf(entry + 1, 1);
    leaf[3] = ek_tree_leaf(entry + 2, 2);
    for (size_t n = 0; n <= 4; n++) {
        const ek_hash root = ek_tree_root(leaf, n);
        ek_hash_text(text, &root);
        assert_string_equal(text, want[n]);
    }
}

/* --- commitments --- */

static void a_commitment_opens_to_one_thing(void **state)
{
    const int32_t a[] = {1, 2, 3}, b[] = {1, 2, 4};
    ek_hash s = {{1}}, t = {{2}};
    (void)state;
    const ek_hash base = ek_commit_tokens(&s, EK_LABEL_REPLY, a, 3, NULL, 0);
    const ek_hash others[] = {ek_commit_tokens(&t, EK_LABEL_REPLY, a, 3, NULL, 0),  /* another salt */
                              ek_commit_tokens(&s, EK_LABEL_PROMPT, a, 3, NULL, 0), /* salt of another label */
                              ek_commit_tokens(&s, EK_LABEL_REPLY, b, 3, NULL, 0),
                              ek_commit_tokens(&s, EK_LABEL_REPLY, a, 2, NULL, 0),
                              ek_commit_tokens(&s, EK_LABEL_REPLY, a, 3, &(ek_commit_part){0}, 1)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(ek_hash_equal(&base, &others[i]));
    const char *x[] = {"ab", "c"}, *y[] = {"a", "bc"};
    const size_t nx[] = {2, 1}, ny[] = {1, 2};
    const ek_hash first = ek_commit_texts(&s, EK_LABEL_STOP, x, nx, 2),
                  second = ek_commit_texts(&s, EK_LABEL_STOP, y, ny, 2);
    assert_false(ek_hash_equal(&first, &second));
    /* Who guesses prompt and rows still lacks the salt: the leaf of the same row differs. */
    const ek_hash row = {{9}}, salt = ek_commit_salt(&s, EK_LABEL_ROWS), other = ek_commit_salt(&t, EK_LABEL_ROWS);
    const ek_hash mine = ek_commit_row(&salt, 0, 5, &row), theirs = ek_commit_row(&other, 0, 5, &row);
    assert_false(ek_hash_equal(&mine, &theirs));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_root_of_a_row_is_its_definition), cmocka_unit_test(every_entry_has_a_path),
        cmocka_unit_test(a_log_that_was_changed_has_no_proof), cmocka_unit_test(the_roots_of_certificate_transparency),
        cmocka_unit_test(a_commitment_opens_to_one_thing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
