/* thought: the limit along random replies and drafts, against a count that is made from the start at each place. */
#include "helper.h"

#include "base/hash/rng.h"
#include "chat/bounds.h"

enum { OPEN = 5, CLOSE = 70, TURN = 9, WORDS = 2, VOCAB = 100, MAX_REPLY = 40, AHEAD = 4 };

static ek_marks marks(void)
{
    ek_marks m;
    for (int i = 0; i < EK_MARK_COUNT; i++) m.id[i] = -1;
    m.id[EK_MARK_CHANNEL_OPEN] = OPEN;
    m.id[EK_MARK_CHANNEL_CLOSE] = CLOSE;
    m.id[EK_MARK_TURN_OPEN] = TURN;
    return m;
}

/* Whether a token may follow the reply. */
static bool allowed(int max, bool open, const int32_t *reply, int n, int32_t token)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        open = reply[i] == OPEN || (open && reply[i] != CLOSE);
        count += open;
    }
    if (max == 0 || count < max) return true;
    return open ? token == CLOSE : token != OPEN;
}

static void check_row(const uint64_t *row, bool all, int max, bool open, const int32_t *reply, int n)
{
    for (int32_t id = 0; id < VOCAB; id++)
        if ((all || (row[id / 64] >> id % 64 & 1)) != allowed(max, open, reply, n, id))
            fail_msg("after %d tokens, at most %d: token %d", n, max, id);
    if (!all) assert_int_equal(row[1] >> (VOCAB - 64), 0);
}

/* Without rows: the same, or the limit is reached in a channel, where only they tell. */
static void check_peek(const ek_thought *t, const int32_t *draft, int k, const bool *all)
{
    bool peeked[AHEAD + 1] = {true, true, true, true, true};
    int n = ek_thought_peek(t, draft, AHEAD, peeked);
    ek_thought at = *t;
    for (int i = 0; n < 0 && i < AHEAD && !(at.inside && at.n >= at.max); i++) ek_thought_accept(&at, draft[i]);
    if (n < 0) assert_true(at.max > 0 && at.inside && at.n >= at.max);
    else assert_int_equal(n, k);
    for (int i = 0; i <= n; i++) assert_int_equal(peeked[i], all[i]);
}

static void the_limit_holds_along_drafts(void **state)
{
    (void)state;
    ek_marks m = marks();
    int n_cut = 0;
    for (uint64_t round = 0; round < 2000; round++) {
        uint64_t seed = round * 1000;
        int max = (int)(ek_mix64(seed++) % 12);
        bool open = ek_mix64(seed++) & 1;
        int32_t prompt[] = {OPEN, CLOSE, TURN, open ? OPEN : 1, 2}, reply[MAX_REPLY + AHEAD];
        ek_thought t;
        ek_thought_start(&t, &m, max, prompt, 5);
        for (int n = 0; n < MAX_REPLY; n++) {
            uint64_t row[(AHEAD + 1) * WORDS];
            bool all[AHEAD + 1] = {true, true, true, true, true};
            for (int i = 0; i < AHEAD; i++) {
                uint64_t x = ek_mix64(seed++);
                reply[n + i] = x % 4 == 0 ? OPEN : x % 4 == 1 ? CLOSE : (int32_t)(x >> 8 & 0xffff) % VOCAB;
            }
            int k = ek_thought_look(&t, reply + n, AHEAD, WORDS, VOCAB, row, all);
            for (int i = 0; i <= k; i++) check_row(row + (ptrdiff_t)i * WORDS, all[i], max, open, reply, n + i);
            check_peek(&t, reply + n, k, all);
            if (k < AHEAD) assert_false(allowed(max, open, reply, n + k, reply[n + k]));
            n_cut += k < AHEAD;
            if (!allowed(max, open, reply, n, reply[n])) reply[n] = CLOSE;
            ek_thought_accept(&t, reply[n]);
        }
    }
    assert_true(n_cut > 5000);
}

static void a_form_has_the_first_word(void **state)
{
    (void)state;
    ek_marks m = marks();
    ek_thought t;
    ek_thought_start(&t, &m, 1, NULL, 0);
    ek_thought_accept(&t, OPEN);
    uint64_t row[WORDS] = {1 << 20, 0}; /* the header is still to come */
    bool all = false;
    assert_int_equal(ek_thought_look(&t, NULL, 0, WORDS, VOCAB, row, &all), 0);
    assert_int_equal(row[0], 1 << 20);
    row[1] = (uint64_t)1 << (CLOSE - 64);
    ek_thought_look(&t, NULL, 0, WORDS, VOCAB, row, &all);
    assert_int_equal(row[0], 0);
    m.id[EK_MARK_CHANNEL_CLOSE] = -1;
    ek_thought_start(&t, &m, 5, NULL, 0);
    assert_int_equal(t.max, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_limit_holds_along_drafts),
                                       cmocka_unit_test(a_form_has_the_first_word)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
