/* What a row's 64-bit digest cannot carry: with generalised birthdays (k lists) the best token of a row is swapped with
 * another one, and the low bits of 16 other logits are chosen until the digest is the old one. The root of SHA-256 that
 * receipts sign is another one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "engine/sample/sampler.h"
#include "receipts/tree.h"

enum { VOCAB = 4096, LISTS = 16, BITS = 14, SIZE = 1 << BITS, STEP = 13, ROOM = 1 << 16 };

typedef struct entry {
    uint64_t sum;
    uint16_t low[LISTS]; /* chosen bits of each logit among those of this entry */
} entry;

typedef struct list {
    entry *v;
    int n;
} list;

static uint64_t term(int token, uint32_t bits)
{
    return ek_mix64((uint64_t)token << 32 | bits);
}

static uint32_t bits_of(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static const uint64_t low_mask = ((uint64_t)1 << STEP) - 1;

/* Pairs of a and b whose sums end in zeros from bit `from` on, STEP of them; the others are zeros already. */
static list merge(const list *a, const list *b, int from, int a_first, int a_n)
{
    int *head = ek_alloc((low_mask + 1) * sizeof *head), *next = ek_alloc((size_t)b->n * sizeof *next);
    list out = {.v = ek_alloc(ROOM * sizeof(entry))};
    for (int i = 0; i < b->n; i++) {
        const size_t h = b->v[i].sum >> from & low_mask;
        next[i] = head[h];
        head[h] = i + 1;
    }
    for (int i = 0; i < a->n; i++)
        for (int k = head[(0 - a->v[i].sum) >> from & low_mask]; k && out.n < ROOM; k = next[k - 1]) {
            entry *e = &out.v[out.n++];
            *e = b->v[k - 1];
            e->sum += a->v[i].sum;
            memcpy(e->low + a_first, a->v[i].low + a_first, (size_t)a_n * sizeof *e->low);
        }
    free(head), free(next);
    return out;
}

/* Values for the low bits of logits [1, 16] by which their terms grow by `target`; false: not with these lists. */
static bool forge(uint16_t low[LISTS], const float *x, uint64_t target)
{
    list at[LISTS];
    for (int i = 0; i < LISTS; i++) {
        at[i] = (list){ek_alloc(SIZE * sizeof(entry)), SIZE};
        const uint32_t bits = bits_of(x[1 + i]);
        for (int k = 0; k < SIZE; k++) {
            at[i].v[k].sum = term(1 + i, (bits & ~(uint32_t)(SIZE - 1)) | (uint32_t)k) - term(1 + i, bits);
            if (i == 0) at[i].v[k].sum -= target;
            at[i].v[k].low[i] = (uint16_t)k;
        }
    }
    for (int level = 0, n = LISTS; n > 2; n /= 2, level++)
        for (int i = 0; i < n; i += 2) {
            const list joined = merge(&at[i], &at[i + 1], STEP * level, i * (1 << level), 1 << level);
            free(at[i].v), free(at[i + 1].v);
            at[i / 2] = joined;
        }
    bool found = false; /* the last two: all that is left of 64 bits */
    const int from = STEP * 3;
    int *head = ek_alloc((1 << 16) * sizeof *head), *next = ek_alloc((size_t)(at[1].n + 1) * sizeof *next);
    for (int i = 0; i < at[1].n; i++) {
        const size_t h = at[1].v[i].sum >> from & 0xffff;
        next[i] = head[h];
        head[h] = i + 1;
    }
    for (int i = 0; i < at[0].n && !found; i++)
        for (int k = head[(0 - at[0].v[i].sum) >> from & 0xffff]; k && !found; k = next[k - 1]) {
            found = at[0].v[i].sum + at[1].v[k - 1].sum == 0;
            if (!found) continue;
            memcpy(low, at[0].v[i].low, 8 * sizeof *low);
            memcpy(low + 8, at[1].v[k - 1].low + 8, 8 * sizeof *low);
        }
    free(head), free(next), free(at[0].v), free(at[1].v);
    return found;
}

static void a_sum_of_64_bits_is_forged_and_a_root_is_not(void **state)
{
    float row[VOCAB], other[VOCAB];
    bool found = false;
    (void)state;
    for (int i = 0; i < VOCAB; i++) row[i] = (float)(ek_mix64((uint64_t)i) >> 44) / 65536.0f + 1;
    row[100] = 30; /* the model's token */
    const uint64_t want = ek_logits_digest(row, VOCAB);
    for (int to = 200; to < 210 && !found; to++) { /* the forger's, and others if the lists have no answer */
        uint16_t low[LISTS];
        memcpy(other, row, sizeof row);
        other[100] = row[to], other[to] = row[100];
        found = forge(low, other, want - ek_logits_digest(other, VOCAB));
        for (int i = 0; found && i < LISTS; i++) {
            const uint32_t bits = (bits_of(other[1 + i]) & ~(uint32_t)(SIZE - 1)) | low[i];
            memcpy(&other[1 + i], &bits, sizeof bits);
        }
    }
    assert_true(found);
    assert_true(ek_logits_digest(other, VOCAB) == want);
    assert_true(memcmp(row, other, sizeof row) != 0);
    assert_true(other[100] < 30); /* another token is the best now */
    for (int i = 0; i < LISTS; i++)
        assert_true(other[1 + i] / row[1 + i] < 1.003f && row[1 + i] / other[1 + i] < 1.003f);
    ek_hash a, b;
    ek_row_root(&a, row, VOCAB, NULL);
    ek_row_root(&b, other, VOCAB, NULL);
    assert_false(ek_hash_equal(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_of_64_bits_is_forged_and_a_root_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
