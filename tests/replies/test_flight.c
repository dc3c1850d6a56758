/* Equal requests at once: followers see the leader's tokens in order, and of those that have not enough exactly one
 * goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "replies/replies.h"

enum { FOLLOWERS = 6, TOKENS = 3000 };

static const ek_reply_key key = {{7}};

static int32_t token_of(int i)
{
    return (i * 37) % 1000;
}

/* A follower with a thread of its own, which is woken by a condition. */
typedef struct reader {
    ek_flights *all;
    ek_flight *flight;
    ek_flight_follower follower;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    int wakes;       /* called and not answered */
    int limit;       /* tokens that it wants */
    int got;         /* tokens that it has seen */
    atomic_int *led; /* how many went on, each from where the one before it left */
    int leads_for;   /* tokens that it computes then, at most */
} reader;

static void wake(void *arg)
{
    reader *r = arg;
    pthread_mutex_lock(&r->lock);
    r->wakes++;
    assert_int_equal(r->wakes, 1); /* none before the last is answered */
    pthread_cond_signal(&r->news);
    pthread_mutex_unlock(&r->lock);
}

static void await(reader *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->wakes == 0) pthread_cond_wait(&r->news, &r->lock);
    r->wakes = 0;
    pthread_mutex_unlock(&r->lock);
}

static void take(reader *r)
{
    int32_t token;
    uint64_t row;
    while (r->got < r->limit && ek_flight_get(r->flight, r->got, &token, &row, NULL)) {
        assert_int_equal(token, token_of(r->got));
        assert_int_equal(row, (uint64_t)r->got * 3);
        r->got++;
    }
}

static void lead(ek_flight *f, int from, int end)
{
    for (int i = from; i < end; i++) ek_flight_add(f, token_of(i), (uint64_t)i * 3, NULL);
    ek_flight_land(f);
}

/* The rest of the reply, or a part of it. */
static void go_on(reader *r, ek_reply_record *so_far)
{
    const int n = so_far ? ek_reply_record_tokens(so_far) : 0;
    assert_true(n >= r->got);
    for (int i = 0; i < n; i++) assert_int_equal(ek_reply_record_token(so_far, i), token_of(i));
    ek_reply_record_release(so_far);
    atomic_fetch_add(r->led, 1);
    const int end = n + r->leads_for < r->limit ? n + r->leads_for : r->limit;
    r->got = end;
    lead(r->flight, n, end);
}

static void *read_all(void *arg)
{
    reader *r = arg;
    for (;;) {
        ek_reply_record *so_far;
        take(r);
        if (r->got == r->limit) break;
        await(r);
        ek_flight_awake(r->flight, &r->follower);
        take(r);
        if (r->got == r->limit || ek_flight_has_leader(r->flight)) continue;
        if (!ek_flight_claim(r->flight, &r->follower, &so_far)) continue;
        go_on(r, so_far);
        return NULL;
    }
    ek_flight_leave(r->flight, &r->follower);
    return NULL;
}

/* The leader ends behind so many tokens; each follower that goes on computes so many more. */
static void fly(int leader_end, int leads_for, const int limit[FOLLOWERS], int want_led)
{
    ek_flights *all = ek_flights_open();
    atomic_int led = 0;
    reader r[FOLLOWERS];
    bool leads;
    ek_flight_follower none = {0};
    ek_flight *f = ek_flight_join(all, &key, false, &none, &leads);
    assert_true(f && leads);
    for (int i = 0; i < FOLLOWERS; i++) {
        r[i] = (reader){.all = all, .limit = limit[i], .led = &led, .leads_for = leads_for};
        r[i].follower = (ek_flight_follower){.wake = wake, .arg = &r[i]};
        pthread_mutex_init(&r[i].lock, NULL);
        pthread_cond_init(&r[i].news, NULL);
        r[i].flight = ek_flight_join(all, &key, false, &r[i].follower, &leads);
        assert_true(r[i].flight == f && !leads);
        assert_int_equal(pthread_create(&r[i].thread, NULL, read_all, &r[i]), 0);
    }
    lead(f, 0, leader_end);
    for (int i = 0; i < FOLLOWERS; i++) {
        pthread_join(r[i].thread, NULL);
        if (leads_for >= TOKENS) assert_int_equal(r[i].got, limit[i]);
        pthread_mutex_destroy(&r[i].lock);
        pthread_cond_destroy(&r[i].news);
    }
    if (want_led >= 0) assert_int_equal(atomic_load(&led), want_led);
    ek_flights_close(all); /* nobody is left in it */
}

static void all_see_all(void **state)
{
    (void)state;
    fly(TOKENS, TOKENS, (const int[]){TOKENS, TOKENS, 1, 17, TOKENS, 2999}, 0);
}

static void one_goes_on(void **state)
{
    (void)state;
    fly(100, TOKENS, (const int[]){TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS}, 1);
    fly(0, TOKENS, (const int[]){50, 50, 50, 50, 50, 50}, 1);
    fly(100, TOKENS, (const int[]){100, 100, 100, 100, 100, 101}, 1);
    fly(100, TOKENS, (const int[]){1, 2, 3, 4, 5, 100}, 0);
}

static void and_the_next_where_that_one_leaves(void **state)
{
    (void)state;
    fly(100, 10, (const int[]){TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS}, FOLLOWERS);
    fly(5, 400, (const int[]){300, 600, 900, 1200, 1500, 1800}, -1);
}

static void who_wants_more_computes_alone(void **state)
{
    (void)state;
    ek_flights *all = ek_flights_open();
    ek_flight_follower a = {.wake = wake}, b = {.wake = wake};
    bool leads;
    const ek_reply_key other = {{7, 1}};
    ek_flight *f = ek_flight_join(all, &key, false, &a, &leads), *g;
    assert_true(leads);
    assert_null(ek_flight_join(all, &key, true, &b, &leads));
    g = ek_flight_join(all, &other, true, &b, &leads);
    assert_true(g && leads);
    ek_flight_land(f);
    ek_flight_land(g);
    f = ek_flight_join(all, &key, true, &a, &leads);
    assert_true(leads);
    ek_flight_land(f);
    ek_flights_close(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_see_all),
        cmocka_unit_test(one_goes_on),
        cmocka_unit_test(and_the_next_where_that_one_leaves),
        cmocka_unit_test(who_wants_more_computes_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
