/* Attention in company: neither the other rows of a run, nor the split of the work, nor keys that
 * are not visible to a row change a bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_scene.h"
#include "base/machine/cpu.h"
#include "base/hash/rng.h"

/* A row alone, and in every stretch of rows that contains it, over several sequences. */
static void test_company(void **state)
{
    (void)state;
    enum { VIEWS = 3, EACH = 5, ROWS = VIEWS * EACH };
    static const int last[VIEWS] = {258, 70, 513}; /* rows around edges of segments and pages */
    for (int i = 0; i < N_CASES; i++) {
        const ek_attn_shape *sh = &cases[i].shape;
        scene s[VIEWS];
        ek_kv_view views[VIEWS];
        ek_attn_row rows[ROWS];
        size_t width = q_width(sh);
        for (int v = 0; v < VIEWS; v++) {
            scene_open(&s[v], sh, last[v] + 1, 1 + v, 500 + (uint64_t)(i * VIEWS + v));
            views[v] = s[v].view;
            for (int r = 0; r < EACH; r++) rows[v * EACH + r] = row_at(&cases[i], v, last[v] - EACH + 1 + r);
        }
        float *q = queries(sh, ROWS, 9), *want = malloc(sizeof *want * width * ROWS);
        for (int r = 0; r < ROWS; r++) {
            float *one = attend(0, NULL, sh, views, &rows[r], 1, q + (size_t)r * width);
            memcpy(want + (size_t)r * width, one, sizeof *one * width);
            free(one);
        }
        CHECK_ISAS(isa, cpu)
        {
            if (!cpu && sh->head_dim > 40) continue; /* the definition is slow */
            for (int first = 0; first < ROWS; first++)
                for (int n = 1; first + n <= ROWS; n++) {
                    float *got = attend(cpu, NULL, sh, views, rows + first, n, q + (size_t)first * width);
                    check_bits("attn", isa, want + (size_t)first * width, got, width * (size_t)n, "%s, rows %d from %d",
                               case_text(&cases[i]), n, first);
                    free(got);
                }
        }
        free(q);
        free(want);
        for (int v = 0; v < VIEWS; v++) scene_close(&s[v]);
    }
}

/* Long rows alone (split into chunks), short and long ones together, a prompt: 1 to 4 threads. */
static void test_threads(void **state)
{
    (void)state;
    enum { LONG = 6200, MAX = 70 };
    static const attn_case some[] = {
        {{EK_FULL, EK_KV_BF16, EK_KV_BF16, 8, 1, 16, 0}, 0},      {{EK_FULL, EK_KV_F32, EK_KV_F32, 3, 1, 12, 0}, 0},
        {{EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 4, 2, 20, 0}, 512}, {{EK_FULL, EK_KV_Q8, EK_KV_Q4, 18, 2, 8, 0}, 0},
        {{EK_FULL, EK_KV_I12, EK_KV_I8, 8, 1, 16, 0}, 0},
    };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const ek_attn_shape *sh = &some[i].shape;
        size_t width = q_width(sh);
        scene s[2];
        scene_open(&s[0], sh, LONG, 1, 700 + i);
        scene_open(&s[1], sh, 300, 3, 800 + i);
        ek_kv_view views[2] = {s[0].view, s[1].view};
        float *q = queries(sh, MAX, 10);
        for (int kind = 0; kind < 5; kind++) {
            ek_attn_row rows[MAX];
            int n = 0;
            switch (kind) {
            case 0: rows[n++] = row_at(&some[i], 0, LONG - 1); break;
            case 1: rows[n++] = row_at(&some[i], 0, 4095); break;
            case 2: /* a verified draft and a fresh request */
                for (; n < 4; n++) rows[n] = row_at(&some[i], 0, 5118 + n);
                rows[n++] = row_at(&some[i], 1, 0);
                break;
            case 3:
                for (; n < MAX; n++) rows[n] = row_at(&some[i], 1, 220 + n);
                break;
            default:
                rows[n++] = row_at(&some[i], 1, 299);
                for (; n < 30; n++) rows[n] = row_at(&some[i], 0, 2030 + n);
            }
            float *want = attend(0, NULL, sh, views, rows, n, q);
            for (int threads = 1; threads <= 4; threads++) {
                ek_pool *pool;
                assert_int_equal(ek_pool_open(&pool, threads), EK_OK);
                CHECK_ISAS(isa, cpu)
                {
                    float *got = attend(cpu, pool, sh, views, rows, n, q);
                    check_bits("attn", isa, want, got, width * (size_t)n, "%s, rows of kind %d, %d threads",
                               case_text(&some[i]), kind, threads);
                    free(got);
                }
                ek_pool_close(pool);
            }
            free(want);
        }
        free(q);
        scene_close(&s[0]);
        scene_close(&s[1]);
    }
}

/* Pages in front of the window are gone; later keys of the same sequence are NaN and infinite. */
static void test_unseen(void **state)
{
    (void)state;
    enum { N_KEYS = 700, N = 40, AT = 520, W = 100 };
    attn_case wide = {{EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 8, 2, 24, 0}, W};
    ek_attn_shape sh = wide.shape;
    scene s;
    scene_open(&s, &sh, N_KEYS, 0, 900);
    float *q = queries(&sh, N, 11);
    ek_attn_row rows[N];
    for (int r = 0; r < N; r++) rows[r] = row_at(&wide, 0, AT + r);
    float *want = attend(0, NULL, &sh, &s.view, rows, N, q);
    ek_attn *a;
    assert_int_equal(ek_attn_plan(&a, 0, &sh), EK_OK);
    float bad[2 * 24];
    for (int hole = 0; hole < N; hole += 13) { /* rows before the hole must not notice it */
        for (int d = 0; d < 48; d++) bad[d] = d % 2 ? NAN : -INFINITY;
        for (int p = AT + hole + 1; p < N_KEYS; p++) ek_attn_store(a, &s.view, p, bad, bad);
        for (int p = 0; p < AT - W + 1; p++) ek_attn_store(a, &s.view, p, bad, bad);
        for (int p = 0; p < (AT - W + 1) / 64; p++) s.page[p] = EK_NO_PAGE;
        CHECK_ISAS(isa, cpu)
        {
            float *got = attend(cpu, NULL, &sh, &s.view, rows, N, q);
            check_bits("attn", isa, want, got, q_width(&sh) * (size_t)(hole + 1), "bad keys from %d", AT + hole + 1);
            free(got);
        }
        for (int i = 0; i < s.n_pages; i++) s.page[i] = s.n_pages - 1 - i;
        for (int p = 0; p < N_KEYS; p++) ek_attn_store(a, &s.view, p, s.k + p * 48, s.v + p * 48);
    }
    ek_attn_free(a);
    free(want);
    free(q);
    scene_close(&s);
}

/* What a row sees is the caller's: rows of a block that see each other, windows that end behind the row, rows
 * in no order at all. The contract for each alone says what all of them together give. */
static void test_any_range(void **state)
{
    (void)state;
    enum { N_KEYS = 1100, N = 24, KINDS = 4 };
    for (int i = 0; i < N_CASES; i++) {
        const ek_attn_shape *sh = &cases[i].shape;
        if (sh->head_dim > 40) continue; /* the contract is slow */
        scene s;
        scene_open(&s, sh, N_KEYS, 1, 1100 + (uint64_t)i);
        size_t width = q_width(sh);
        float *q = queries(sh, N, 12), *want = malloc(sizeof *want * width * N);
        for (int kind = 0; kind < KINDS; kind++) {
            ek_attn_row rows[N];
            for (int r = 0; r < N; r++) {
                uint64_t x = ek_mix64((uint64_t)(i * KINDS + kind) * N + (uint64_t)r);
                int at = 240 + r, lo = (int)(x % N_KEYS), n = 1 + (int)((x >> 32) % (uint64_t)(N_KEYS - lo));
                switch (kind) {
                case 0: rows[r] = (ek_attn_row){0, 0, r / 9 * 9 + 249}; break; /* blocks of 9 */
                case 1: rows[r] = (ek_attn_row){0, at > 250 ? at - 250 : 0, r < 6 || r > 17 ? at + 1 : 258}; break;
                case 2: rows[r] = (ek_attn_row){0, (int)(x % 256), 257 + (int)(x >> 33) % (N_KEYS - 256)}; break;
                default: rows[r] = (ek_attn_row){0, lo, lo + n};
                }
                for (int h = 0; h < sh->n_heads; h++) {
                    size_t o = (size_t)r * width + (size_t)h * (size_t)sh->head_dim;
                    contract(&s, &rows[r], q + o, h, want + o);
                }
            }
            CHECK_ISAS(isa, cpu)
            for (int threads = 1; threads <= 3; threads += 2) {
                ek_pool *pool = NULL;
                if (threads > 1) assert_int_equal(ek_pool_open(&pool, threads), EK_OK);
                for (int first = 0; first<N; first += threads> 1 ? N : 7)
                    for (int n = 1; first + n <= N; n += N - first - n > 4 ? 4 : 1) {
                        if (threads > 1) n = N;
                        float *got = attend(cpu, pool, sh, &s.view, rows + first, n, q + (size_t)first * width);
                        check_bits("attn", isa, want + (size_t)first * width, got, width * (size_t)n,
                                   "%s, ranges of kind %d, rows %d from %d, %d threads", case_text(&cases[i]), kind, n,
                                   first, threads);
                        free(got);
                    }
                ek_pool_close(pool);
            }
        }
        free(q);
        free(want);
        scene_close(&s);
    }
}

/* A window at the end of a long sequence: no page that the rows of a block do not see is looked at. */
static void test_unseen_block(void **state)
{
    (void)state;
    enum { N_KEYS = 800, N = 12, LO = 300, END = 500 };
    attn_case c = {{EK_SLIDING, EK_KV_I16, EK_KV_I16, 8, 2, 24, 0}, 0};
    scene s;
    scene_open(&s, &c.shape, N_KEYS, 0, 901);
    float *q = queries(&c.shape, N, 13), bad[48];
    ek_attn_row rows[N]; /* the block [460, 472) sees itself, the rest its own half */
    for (int r = 0; r < N; r++) rows[r] = (ek_attn_row){0, LO + r, r < 6 ? END : END - 20 + r};
    float *want = attend(0, NULL, &c.shape, &s.view, rows, N, q);
    for (int d = 0; d < 48; d++) bad[d] = d % 2 ? NAN : -INFINITY;
    for (int p = 0; p < N_KEYS; p++)
        if (p < LO || p >= END) ek_attn_store(s.plan, &s.view, p, bad, bad);
    for (int p = 0; p < s.n_pages; p++)
        if (p < LO / 64 || p > (END - 1) / 64) s.page[p] = EK_NO_PAGE;
    CHECK_ISAS(isa, cpu)
    {
        float *got = attend(cpu, NULL, &c.shape, &s.view, rows, N, q);
        check_bits("attn", isa, want, got, q_width(&c.shape) * N, "nothing outside [%d, %d)", LO, END);
        free(got);
    }
    free(want);
    free(q);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(test_company), CHECK_TEST(test_threads),
                                              CHECK_TEST(test_unseen), CHECK_TEST(test_any_range),
                                              CHECK_TEST(test_unseen_block)};
    return CHECK_RUN(argc, argv, tests);
}
