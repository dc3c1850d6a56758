/* Steps in microbatches, for several devices: all rows once, in an order that they may be computed in; and of replies
 * in turns what each microbatch draws and waits for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/hash/rng.h"
#include "gpu/several/state.h"
#include "model/pass.h"

/* Rows of three sequences: a long prompt whose rows 40 to 70 see each other, one that replies, one that ends. */
static void microbatches_are_the_step(void **state)
{
    (void)state;
    enum { ROWS = 100 + 1 + 60 };
    static ek_row row[ROWS];
    ek_microbatches p;
    ek_microbatches_open(&p, ROWS);
    for (int r = 0; r < ROWS; r++) {
        const int seq = r < 100 ? 0 : r < 101 ? 1 : 2, pos = seq == 0 ? r : seq == 1 ? 500 : r - 101;
        row[r] = ek_text_row(r, pos, seq, seq == 1 || r + 1 == ROWS, 32);
        if (seq == 0 && r >= 40 && r < 70) row[r].visible[EK_SLIDING].end = 70;
    }
    ek_draw draw[2] = {{0}};
    const ek_step s = {.row = row, .n_rows = ROWS, .n_seqs = 3, .draw = draw, .n_draws = 2};
    for (int max = 1; max <= EK_MICROBATCHES; max++)
        for (int min = 1; min < 200; min++) {
            bool there[ROWS] = {false};
            int next[3] = {0, 500, 0};
            ek_microbatches_divide(&p, &s, NULL, max, min);
            assert_true(p.n >= 1 && p.n <= max);
            if (min <= 30 && max > 1) assert_true(p.n > 1);
            for (int i = 0; i < p.n; i++) {
                const ek_step own = ek_microbatches_step(&p, &s, i);
                assert_true(own.n_rows > 0 && own.n_draws == (i + 1 < p.n ? 0 : 2));
                for (int r = 0; r < own.n_rows; r++) {
                    const ek_row *at = &own.row[r];
                    assert_false(there[at->token]);
                    there[at->token] = true;
                    assert_int_equal(at->pos, next[at->seq]++); /* in order, over all microbatches */
                    assert_true(i + 1 == p.n || !at->wants_logits);
                    if (r) assert_true(at->seq >= own.row[r - 1].seq);
                }
                for (int r = 0; r < own.n_rows; r++) /* what it sees was written, or is by this microbatch */
                    assert_true(own.row[r].visible[EK_SLIDING].end <= next[own.row[r].seq]);
            }
            for (int r = 0; r < ROWS; r++) assert_true(there[r]);
        }
    /* rows that all see the last, none of which wants logits: they go together */
    for (int r = 0; r < 100; r++) row[r].visible[EK_SLIDING].end = 100;
    const ek_step one = {.row = row, .n_rows = 100, .n_seqs = 1};
    ek_microbatches_divide(&p, &one, NULL, 4, 10);
    assert_int_equal(p.n, 1);
    ek_microbatches_close(&p);
}

/* --- in turns */

enum { MAX = 64 };

/* Replies, of which each has a row and a draw. */
typedef struct replies {
    ek_row row[MAX];
    ek_draw draw[MAX];
    int follows[MAX];
    ek_step s;
} replies;

static void lay_out(replies *x, const int *follows, int n)
{
    for (int i = 0; i < n; i++) {
        x->row[i] = ek_text_row(0, 10 + i, i, true, 32);
        x->draw[i] = (ek_draw){.logits = i};
        x->follows[i] = follows ? follows[i] : i;
    }
    x->s = (ek_step){.row = x->row, .n_rows = n, .n_seqs = n, .draw = x->draw, .n_draws = n, .follows = x->follows};
}

/* That of a step whose tokens were known. */
static ek_microbatches whole(int n_rows)
{
    return (ek_microbatches){.n = 1, .first = {0, n_rows}};
}

/* Every row once and in its place, with its own draw; what a microbatch follows was drawn by the microbatch that it
 * waits for, or one in front of it; and until a microbatch has begun nothing that it follows is overwritten, which is
 * what the microbatches of its own step in front of it draw. */
static void check_turns(const ek_microbatches *p, const replies *x, const ek_microbatches *front)
{
    int next = 0;
    for (int i = 0; i < p->n; i++) {
        const ek_step own = ek_microbatches_step(p, &x->s, i);
        assert_true(own.n_rows > 0 && own.n_draws == own.n_rows);
        assert_ptr_equal(own.row, x->row + next);
        assert_ptr_equal(own.draw, x->draw + next);
        assert_int_equal(own.first_draw, next);
        assert_int_equal(own.first_logits, next);
        for (int r = 0; r < own.n_rows; r++, next++) {
            assert_int_equal(own.follows[r], x->follows[next]);
            assert_true(ek_microbatches_with(front, own.follows[r]) <= p->after[i]);
            assert_true(own.follows[r] >= own.first_draw);
            assert_int_equal(ek_microbatches_with(p, next), i);
        }
        assert_true(i == 0 || p->after[i] >= p->after[i - 1]);
    }
    assert_int_equal(next, x->s.n_rows);
}

/* So many devices, and replies that end one after the other, in any order. */
static void replies_go_in_turns(void **state)
{
    (void)state;
    static replies x;
    for (int seed = 0; seed < 200; seed++) {
        const int max = 2 + seed % 3, min = 1 + seed / 3 % 2;
        int n = 1 + (int)(ek_mix64((uint64_t)seed) % MAX), left[MAX];
        ek_microbatches last = whole(n), p = {0};
        lay_out(&x, NULL, n);
        for (int turn = 0; n > 0; turn++) {
            ek_microbatches_follow(&p, &x.s, &last, max, min);
            assert_int_equal(p.n, n / min < 1 ? 1 : n / min < max ? n / min : max);
            check_turns(&p, &x, &last);
            for (int i = 0; i < p.n; i++) { /* of about as many, none far from the others */
                const int size = p.first[i + 1] - p.first[i];
                assert_true(size <= (n + p.n - 1) / p.n + 1 + n / 16);
            }
            last = p;
            const int before = n, odds = seed % 7 + 2;
            n = 0;
            for (int i = 0; i < before; i++)
                if (ek_mix64((uint64_t)(seed * 1000 + turn * 100 + i)) % (uint64_t)odds) left[n++] = i;
            lay_out(&x, left, n);
        }
    }
}

/* A reply stays in its microbatch while these have about as many rows: then a microbatch waits for that of the step in
 * front alone.
 */
static void replies_stay_in_their_microbatch(void **state)
{
    (void)state;
    static replies x;
    ek_microbatches front = whole(8), p = {0}, q = {0};
    lay_out(&x, NULL, 8);
    ek_microbatches_follow(&p, &x.s, &front, 2, 1);
    assert_true(p.n == 2 && p.first[1] == 4 && p.after[0] == 0 && p.after[1] == 0);
    lay_out(&x, (const int[]){0, 1, 4, 5, 6, 7}, 6);
    ek_microbatches_follow(&q, &x.s, &p, 2, 1);
    assert_true(q.n == 2 && q.first[1] == 2 && q.after[0] == 0 && q.after[1] == 1);
    lay_out(&x, (const int[]){4, 5, 6, 7}, 4);
    ek_microbatches_follow(&q, &x.s, &p, 2, 1);
    assert_true(q.n == 2 && q.first[1] == 2 && q.after[0] == 1 && q.after[1] == 1);
    lay_out(&x, (const int[]){3}, 1);
    ek_microbatches_follow(&q, &x.s, &p, 2, 1);
    assert_true(q.n == 1 && q.after[0] == 0);
    const ek_microbatches twelve = {.n = 2, .first = {0, 6, 12}, .turns = true};
    lay_out(&x, (const int[]){0, 6, 7, 8, 9, 10, 11},
            7); /* few are left of the first microbatch: sizes are made equal */
    ek_microbatches_follow(&q, &x.s, &twelve, 2, 1);
    assert_true(q.n == 2 && q.first[1] == 3 && q.after[0] == 1 && q.after[1] == 1);
}

/* Steps that are not one row and one draw per reply, in their order. */
static void others_are_whole(void **state)
{
    (void)state;
    static replies x;
    const ek_microbatches front = {.n = 2, .first = {0, 2, 4}, .turns = true};
    ek_microbatches p = {0};
    for (int k = 0; k < 5; k++) {
        lay_out(&x, NULL, 4);
        if (k == 0) x.row[3].seq = x.row[2].seq;
        if (k == 1) x.follows[2] = 3, x.follows[3] = 2;
        if (k == 2) x.follows[1] = 0;
        if (k == 3) x.s.n_draws = 3;
        if (k == 4) x.draw[1].logits = 0;
        ek_microbatches_follow(&p, &x.s, &front, 2, 1);
        assert_true(p.n == 1 && p.after[0] == 1 && p.first[1] == 4);
        assert_int_equal(ek_microbatches_step(&p, &x.s, 0).n_rows, 4);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(microbatches_are_the_step),
        cmocka_unit_test(replies_go_in_turns),
        cmocka_unit_test(replies_stay_in_their_microbatch),
        cmocka_unit_test(others_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
