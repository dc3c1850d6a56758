/* The engine's news reach the event loop's thread: all of them, in order, with one wake-up for the results of a step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <event2/event.h>

#include "serve/http/http.h"
#include "serve/threads/threads.h"

enum { N = 64 };

static int got[2 * N], n_got;

static void on_news(const ek_turn_news *news)
{
    if (n_got < 2 * N) got[n_got] = news->token;
    n_got++;
}

static void post(ek_mailbox *b, int from, int n)
{
    for (int i = from; i < from + n; i++) ek_mailbox_post(b, &(ek_turn_news){.token = i});
}

static void turn(ek_loop *l)
{
    event_base_loop(l->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

static void results_of_a_step_wake_once(void **state)
{
    (void)state;
    ek_loop loop = {.base = event_base_new()};
    ek_mailbox *b;
    n_got = 0;
    assert_int_equal(ek_mailbox_open(&b, &loop, on_news), EK_OK);
    ek_mailbox_gather(b, true);
    for (int i = 0; i < N; i++) { /* as a reader that is faster than the engine would see them */
        post(b, i, 1);
        turn(&loop);
    }
    assert_int_equal(n_got, 0);
    ek_mailbox_gather(b, false);
    turn(&loop);
    assert_int_equal(n_got, N);
    post(b, N, 1); /* and what is no result of a step at once */
    turn(&loop);
    assert_int_equal(n_got, N + 1);
    ek_mailbox_gather(b, true);
    ek_mailbox_gather(b, false);
    turn(&loop);
    assert_int_equal(n_got, N + 1);
    for (int i = 0; i < n_got; i++) assert_int_equal(got[i], i);
    ek_mailbox_close(b);
    event_base_free(loop.base);
}

/* One was posted before, and its reader is about to come. */
static void what_waits_is_taken_with_them(void **state)
{
    (void)state;
    ek_loop loop = {.base = event_base_new()};
    ek_mailbox *b;
    n_got = 0;
    assert_int_equal(ek_mailbox_open(&b, &loop, on_news), EK_OK);
    post(b, 0, 1);
    ek_mailbox_gather(b, true);
    post(b, 1, N - 1);
    turn(&loop); /* woken by the first */
    assert_int_equal(n_got, N);
    post(b, N, 2);
    ek_mailbox_gather(b, false);
    turn(&loop);
    assert_int_equal(n_got, N + 2);
    ek_mailbox_gather(b, true);
    post(b, N + 2, 1);
    ek_mailbox_close(b); /* delivers what nobody was woken for */
    assert_int_equal(n_got, N + 3);
    event_base_free(loop.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_of_a_step_wake_once),
                                       cmocka_unit_test(what_waits_is_taken_with_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
