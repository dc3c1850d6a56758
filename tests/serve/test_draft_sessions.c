/* Tokens of requests on other servers: kept by session and owner, cut and continued, and few at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/server_state.h"

enum { MAX = 1000 };

static int32_t all[MAX];

/* Puts tokens first, first + 1, …; the number of the session's tokens, which are 0, 1, …, or -1. */
static int put(ek_draft_sessions *s, uint64_t owner, const char *name, int from, int n)
{
    int32_t *out = NULL;
    int n_out = 0;
    if (!ek_draft_sessions_put(s, owner, name, from, all + from, n, &out, &n_out)) return -1;
    assert_memory_equal(out, all, (size_t)n_out * sizeof *out);
    free(out);
    return n_out;
}

static void a_session_grows_and_is_cut(void **state)
{
    ek_draft_sessions *s = *state;
    assert_int_equal(put(s, 1, "a", 0, 30), 30);
    assert_int_equal(put(s, 1, "a", 30, 1), 31);
    assert_int_equal(put(s, 1, "a", 10, 2), 12);
    assert_int_equal(put(s, 1, "a", 13, 1), -1);
    assert_int_equal(put(s, 1, "a", 12, MAX - 12), MAX);
    assert_int_equal(put(s, 1, "a", 0, 1), 1);
}

static void a_session_is_its_owners(void **state)
{
    ek_draft_sessions *s = *state;
    assert_int_equal(put(s, 1, "b", 0, 30), 30);
    assert_int_equal(put(s, 2, "b", 30, 1), -1);
    assert_int_equal(put(s, 2, "b", 0, 5), 5);
    assert_int_equal(put(s, 1, "b", 30, 1), 31);
}

static void the_longest_unused_makes_room(void **state)
{
    ek_draft_sessions *s = *state;
    char name[16];
    assert_int_equal(put(s, 1, "first", 0, 3), 3);
    for (int i = 0; i < EK_DRAFT_SESSIONS; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(put(s, 1, name, 0, 3), 3);
        assert_int_equal(put(s, 1, "n0", 3, 1), 4); /* in use */
    }
    assert_int_equal(put(s, 1, "first", 3, 1), -1);
    assert_int_equal(put(s, 1, "n0", 3, 1), 4);
}

/* So that nobody loses a session to one who has more. */
static void the_largest_owner_makes_room(void **state)
{
    ek_draft_sessions *s = *state;
    char name[16];
    assert_int_equal(put(s, 2, "theirs", 0, 3), 3);
    for (int i = 0; i < 2 * EK_DRAFT_SESSIONS; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(put(s, 1, name, 0, 3), 3);
    }
    assert_int_equal(put(s, 2, "theirs", 3, 1), 4);
    for (int i = 0; i < EK_DRAFT_SESSIONS; i++) {
        snprintf(name, sizeof name, "m%d", i);
        assert_int_equal(put(s, 2, name, 0, 3), 3);
    }
    snprintf(name, sizeof name, "n%d", 2 * EK_DRAFT_SESSIONS - 1);
    assert_int_equal(put(s, 1, name, 3, 1), 4); /* half of them stay */
}

static int open_sessions(void **state)
{
    for (int i = 0; i < MAX; i++) all[i] = i;
    *state = ek_draft_sessions_open(MAX);
    return 0;
}

static int close_sessions(void **state)
{
    ek_draft_sessions_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_session_grows_and_is_cut, open_sessions, close_sessions),
        cmocka_unit_test_setup_teardown(a_session_is_its_owners, open_sessions, close_sessions),
        cmocka_unit_test_setup_teardown(the_longest_unused_makes_room, open_sessions, close_sessions),
        cmocka_unit_test_setup_teardown(the_largest_owner_makes_room, open_sessions, close_sessions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
