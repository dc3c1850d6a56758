/* engine: pages that other processes share: last events that wait for them, requests that do not run without them,
 * pages that are read while all places are taken, and a wrong page with a right checksum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/redis.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/store.h"
#include "heard.h"

static void a_last_event_waits_for_its_pages(void **state)
{
    (void)state;
    fake f;
    gate g = {.shut = true};
    ek_store_backend b = gate_of(&g);
    int32_t tokens[300];
    heard plain, published;
    fake_init(&f, 100, true, true);
    ek_engine *e = open_with(&f, &b, 2, 0);
    fill(tokens, 300, 1);
    ek_request_opts o = ask_for(tokens, 300, 2, &published);
    o.publish = true;
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
    for (int i = 0; i < 40; i++) assert_true(ek_engine_step(e)); /* it has something to wait for */
    assert_int_equal(published.tokens, 1);
    assert_int_equal(published.finish, EK_FINISH_NONE);
    o = ask_for(tokens, 250, 2, &plain); /* nobody else waits for it */
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
    for (int i = 0; i < 40; i++) ek_engine_step(e);
    assert_int_equal(plain.finish, EK_FINISH_LENGTH);
    assert_int_equal(published.finish, EK_FINISH_NONE);
    atomic_store(&g.shut, false);
    step_until_idle(e);
    assert_int_equal(published.finish, EK_FINISH_LENGTH);
    assert_int_equal(published.tokens, 2);
    assert_true(atomic_load(&g.writes) >= 4);
    atomic_store(&g.shut, true); /* the engine ends: at once */
    fill(tokens, 300, 2);
    o = ask_for(tokens, 300, 1, &published);
    o.publish = true;
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
    for (int i = 0; i < 20; i++) ek_engine_step(e);
    assert_int_equal(published.finish, EK_FINISH_NONE);
    ek_engine_stop(e, false);
    assert_int_equal(published.finish, EK_FINISH_LENGTH);
    atomic_store(&g.shut, false);
    ek_engine_close(e);
}

static void less_than_was_asked_for_is_not_computed(void **state)
{
    (void)state;
    fake f;
    int32_t tokens[300];
    heard h;
    fake_init(&f, 100, true, true);
    ek_engine *e = open_with(&f, NULL, 2, 0);
    fill(tokens, 300, 1);
    ek_request_opts o = ask_for(tokens, 300, 2, &h);
    o.min_cached = 0.01f;
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
    step_until_idle(e);
    assert_int_equal(h.finish, EK_FINISH_UNCACHED);
    assert_int_equal(h.events, 1);
    assert_int_equal(f.rows, 0);
    o = ask_for(tokens, 200, 1, &h);
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
    step_until_idle(e);
    static const struct {
        float share;
        bool runs;
    } asked[] = {{0.7f, false}, {0.5f, true}, {0, true}, {1, true}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        o = ask_for(tokens, 300, 2, &h);
        o.min_cached = asked[i].share;
        assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
        step_until_idle(e);
        assert_int_equal(h.finish, asked[i].runs ? EK_FINISH_LENGTH : EK_FINISH_UNCACHED);
        if (!asked[i].runs) assert_int_equal(h.n_cached, 200);
    }
    ek_engine_close(e);
}

static void pages_are_read_while_all_places_are_taken(void **state)
{
    (void)state;
    fake f;
    gate g = {0};
    ek_store_backend b = gate_of(&g);
    int32_t tokens[2][300];
    heard h[2];
    fake_init(&f, 100, true, true);
    ek_engine *e = open_with(&f, &b, 1, 0);
    for (int i = 0; i < 2; i++) {
        fill(tokens[i], 300, 1 + (uint64_t)i);
        ek_request_opts o = ask_for(tokens[i], 300, i ? 2 : 500, &h[i]);
        assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
        for (int k = 0; k < 30; k++) ek_engine_step(e);
        if (i == 0) assert_true(h[0].tokens > 0);
    }
    for (double end = ek_now() + 5; atomic_load(&g.reads) < 2 && ek_now() < end;) {
        ek_engine_step(e);
        usleep(2000); /* the store's thread needs a turn, and the first request has 500 */
    }
    assert_int_equal(atomic_load(&g.reads), 2); /* the first page of each prompt, which is not there */
    assert_int_equal(h[0].finish, EK_FINISH_NONE);
    assert_int_equal(h[1].events, 0);
    step_until_idle(e);
    assert_int_equal(h[1].finish, EK_FINISH_LENGTH);
    ek_engine_close(e);
}

/* --- a replica whose memory is bad --- */

static ek_store_backend inner;

/* One bit of the second page, before its checksum is made. */
static void write_bad(void *arg, ek_store_page *const *page, int n)
{
    for (int i = 0; i < n; i++)
        if (page[i]->depth == 1 && page[i]->has[EK_FULL]) page[i]->bytes[EK_FULL][8] ^= 1;
    inner.write(arg, page, n);
}

static void ask_all(ek_engine *e, const int32_t *tokens, heard *h)
{
    ek_request_opts o = ask_for(tokens, 330, 3, h);
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
    step_until_idle(e);
    assert_int_equal(h->finish, EK_FINISH_LENGTH);
}

static void open_at(ek_store_backend *b, const redis_server *r, const fake *f)
{
    const ek_shared_opts o = {.url = r->url, .max_bytes = 1e9};
    assert_int_equal(ek_store_shared_open(b, &o, "fake", &f->layout), EK_OK);
    for (double end = ek_now() + 5; atomic_load(&b->shared->connected) < 2 && ek_now() < end;) usleep(1000);
}

static int pages_of(const redis_server *r)
{
    int n;
    free(redis_keys(r, "evenkeel:page:1:", &n));
    return n;
}

/* The checksum is right and the page is not: the audit finds it, and it is not used again, nor what follows it. */
static void a_wrong_page_is_found_and_never_used_again(void **state)
{
    (void)state;
    fake f;
    redis_server r;
    int32_t tokens[330];
    heard want, h;
    ek_engine_stats st;
    if (!redis_start(&r, NULL)) skip();
    fake_init(&f, 100, true, true);
    fill(tokens, 330, 7);
    ek_engine *e = open_with(&f, NULL, 2, 0);
    ask_all(e, tokens, &want);
    ek_engine_close(e);
    fake_init(&f, 100, true, true);
    open_at(&inner, &r, &f);
    ek_store_backend bad = inner, b;
    bad.write = write_bad;
    e = open_with(&f, &bad, 2, 0);
    ask_all(e, tokens, &h);
    assert_int_equal(h.first, want.first);
    ek_engine_close(e);
    const int held = pages_of(&r);
    assert_true(held >= 5);
    fake_init(&f, 100, true, true);
    open_at(&b, &r, &f);
    e = open_with(&f, &b, 2, 1);
    ask_all(e, tokens, &h); /* and then the audit */
    assert_true(h.n_cached >= 320);
    ek_engine_stats_read(e, &st);
    assert_int_equal(st.cache_audit_mismatches, 1);
    for (double end = ek_now() + 5; pages_of(&r) > 2 && ek_now() < end;) usleep(5000);
    assert_true(pages_of(&r) <= 2); /* of the first page alone */
    ask_all(e, tokens, &h);
    assert_int_equal(h.first, want.first);
    assert_true(h.n_cached <= 64);
    ek_engine_stats_read(e, &st);
    assert_true(st.shared_wrong >= 4);
    ek_engine_close(e);
    assert_true(pages_of(&r) >= held); /* the right ones took their places */
    fake_init(&f, 100, true, true);
    open_at(&b, &r, &f);
    e = open_with(&f, &b, 2, 1);
    ask_all(e, tokens, &h);
    assert_int_equal(h.first, want.first);
    assert_true(h.n_cached >= 320);
    ek_engine_stats_read(e, &st);
    assert_int_equal(st.cache_audit_mismatches, 0);
    ek_engine_close(e);
    redis_end(&r);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_last_event_waits_for_its_pages),
        cmocka_unit_test(less_than_was_asked_for_is_not_computed),
        cmocka_unit_test(pages_are_read_while_all_places_are_taken),
        cmocka_unit_test(a_wrong_page_is_found_and_never_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
