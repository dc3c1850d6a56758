/* The tree T against its other description: n leaves are split at the largest power of two below n. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "ops/tree.h"

enum { LEAVES = 300, WIDTH = 5, LEVELS = 10 };

static float leaf[LEAVES][WIDTH];

static void fill_leaves(void)
{
    check_fill_wide(leaf[0], LEAVES * WIDTH, 1);
}

/* The sum of element i over leaves [first, first + n). */
static float split_sum(int first, int n, int i)
{
    if (n == 1) return leaf[first][i];
    int left = 1;
    while (left * 2 < n) left *= 2;
    return split_sum(first, left, i) + split_sum(first + left, n - left, i);
}

static void expect_same(float want, float got, const char *what, int n, int i)
{
    if (memcmp(&want, &got, sizeof want))
        fail_msg("%s of %d leaves, element %d: want %a, got %a", what, n, i, (double)want, (double)got);
}

static void test_floats(void **state)
{
    (void)state;
    fill_leaves();
    for (int n = 1; n <= LEAVES; n++) {
        ek_tree t = {.count = 0};
        for (int j = 0; j < n; j++) ek_tree_push(&t, leaf[j][0]);
        expect_same(split_sum(0, n, 0), ek_tree_sum(&t), "the tree", n, 0);
    }
}

static void test_rows(void **state)
{
    (void)state;
    fill_leaves();
    for (int n = 1; n <= LEAVES; n++) {
        float node[LEVELS * WIDTH], row[WIDTH];
        for (int j = 0; j < n; j++) {
            memcpy(row, leaf[j], sizeof row);
            ek_tree_push_row(node, (uint64_t)j, row, WIDTH);
        }
        const float *sum = ek_tree_sum_row(node, (uint64_t)n, WIDTH);
        for (int i = 0; i < WIDTH; i++) expect_same(split_sum(0, n, i), sum[i], "a row", n, i);
    }
}

static void test_no_leaves(void **state)
{
    (void)state;
    ek_tree t = {.count = 0};
    float node[WIDTH] = {1, 2, 3, 4, 5};
    expect_same(0, ek_tree_sum(&t), "the tree", 0, 0);
    const float *sum = ek_tree_sum_row(node, 0, WIDTH);
    for (int i = 0; i < WIDTH; i++) expect_same(0, sum[i], "a row", 0, i);
}

/* The same sum, written out. */
static void test_lanes(void **state)
{
    (void)state;
    for (int seed = 0; seed < 50; seed++) {
        float x[EK_LANES], lane[EK_LANES], pair[4];
        check_fill_wide(x, EK_LANES, (uint64_t)seed);
        memcpy(lane, x, sizeof x);
        for (int l = 0; l < 4; l++) pair[l] = (x[l] + x[l + 8]) + (x[l + 4] + x[l + 12]);
        expect_same((pair[0] + pair[2]) + (pair[1] + pair[3]), ek_add_lanes(lane), "lanes", EK_LANES, seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_floats), cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_no_leaves), cmocka_unit_test(test_lanes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
