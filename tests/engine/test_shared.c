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
#include "asks.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "cache/shared/store_shared.h"
#include "cache/store_memory.h"

/* What the engine says of a request, whatever it is. */
typedef struct heard {
    int tokens, n_cached, events;
    int32_t first;
    ek_finish finish;
} heard;

static void hear(void *arg, const ek_event *e)
{
    heard *h = arg;
    h->events++;
    if (e->token >= 0 && h->tokens++ == 0) h->first = e->token;
    h->n_cached = e->n_cached;
    h->finish = e->finish;
}

static ek_request_opts ask_for(const int32_t *tokens, int n, int max, heard *h)
{
    *h = (heard){0};
    return (ek_request_opts){.tokens = tokens,
                             .n_tokens = n,
                             .max_tokens = max,
                             .sampling = ek_sampling_greedy(),
                             .ignore_eos = true,
                             .prompt_logits_from = n,
                             .sink = hear,
                             .arg = h};
}

static void fill(int32_t *token, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) token[i] = (int32_t)(ek_mix64(seed * 7919 + (uint64_t)i) % 90);
}

/* --- a place that a test can hold shut --- */

typedef struct gate {
    atomic_bool shut;
    atomic_int writes, reads;
    ek_store_counts counts;
} gate;

static void gate_write(void *arg, ek_store_page *const *page, int n)
{
    gate *g = arg;
    (void)page;
    while (atomic_load(&g->shut)) usleep(500);
    atomic_fetch_add(&g->writes, n);
}

static void gate_read(void *arg, ek_store_page *page, const bool want[EK_KIND_COUNT])
{
    gate *g = arg;
    (void)page, (void)want;
    atomic_fetch_add(&g->reads, 1);
}

static void gate_close(void *arg)
{
    (void)arg;
}

static ek_engine *open_with(fake *f, const ek_store_backend *b, int requests, double audit)
{
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    ek_executor on = fake_executor(f, 64, 64);
    o.max_requests = requests, o.max_queue = 8, o.chunk = 90, o.cache_store = b, o.cache_audit = audit;
    assert_int_equal(ek_engine_open_on(&e, &on, &o), EK_OK);
    return e;
}

static ek_store_backend gate_of(gate *g)
{
    return (ek_store_backend){
        .arg = g, .write = gate_write, .read = gate_read, .close = gate_close, .counts = &g->counts};
}

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

/* --- a place that outlives engines, and counts what they ask of it --- */

typedef struct place {
    ek_store_backend in;
    bool full; /* nothing more is taken */
    atomic_int asked[EK_KIND_COUNT];
} place;

static void place_write(void *arg, ek_store_page *const *page, int n)
{
    place *p = arg;
    if (!p->full) p->in.write(p->in.arg, page, n);
}

static void place_read(void *arg, ek_store_page *page, const bool want[EK_KIND_COUNT])
{
    place *p = arg;
    for (int k = 0; k < EK_KIND_COUNT; k++) atomic_fetch_add(&p->asked[k], want[k]);
    p->in.read(p->in.arg, page, want);
}

/* Of sliding pages, which can be ten times as large as full ones, only what the place sees where the prompt goes on:
 * behind the last page that is there, or the nearest place before it that was kept. A prompt that ends with a page has
 * all but its last token. */
static void no_more_is_read_than_a_prompt_needs(void **state)
{
    enum { N = 20 * EK_PAGE_TOKENS, WINDOW = 100, SEEN = 2 };
    static const struct {
        int same, n;         /* tokens that it begins with, and has */
        int cached, sliding; /* that it begins behind; sliding pages that are asked for */
    } next[] = {{N, N, N - 1, SEEN},
                {N, N + 70, N, 1 + SEEN}, /* another page, which is not there; behind it all but one was asked for */
                {N, N - 512, N - 513, SEEN},
                {N - 512, N, N - 512, SEEN},
                {N - 512 + 20, N, N - 512, SEEN},
                {1100, N, N - 512, SEEN + 4 * SEEN}, /* kept 4 pages before the 17 that are there */
                {100, N, 0, 1}};                     /* nothing is kept there */
    (void)state;
    fake f;
    place p = {0};
    int32_t tokens[N + 70];
    heard h;
    fake_init(&f, WINDOW, true, true);
    assert_int_equal(ek_store_memory_open(&p.in, &f.layout, 1e8, NULL), EK_OK);
    const ek_store_backend b = {
        .arg = &p, .write = place_write, .read = place_read, .close = gate_close, .counts = p.in.counts};
    for (int i = -1; i < (int)(sizeof next / sizeof *next); i++) {
        const int n = i < 0 ? N : next[i].n;
        atomic_store(&p.asked[EK_SLIDING], 0);
        fill(tokens, N + 70, 1);
        for (int k = i < 0 ? n : next[i].same; k < n; k++) tokens[k] = (tokens[k] + 1) % 90;
        fake_init(&f, WINDOW, true, true);
        ek_engine *e = open_with(&f, &b, 2, 0);
        ek_request_opts o = ask_for(tokens, n, 2, &h);
        assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
        step_until_idle(e);
        if (i >= 0 && (h.n_cached != next[i].cached || atomic_load(&p.asked[EK_SLIDING]) != next[i].sliding))
            fail_msg("%d: %d cached, not %d; %d sliding pages asked for, not %d", i, h.n_cached, next[i].cached,
                     atomic_load(&p.asked[EK_SLIDING]), next[i].sliding);
        ek_engine_close(e);
        p.full = true;
    }
    p.in.close(p.in.arg);
}

/* Layers of one kind alone, and windows that end with the token itself: everything is found, and nothing is asked for
 * for ever. */
static void every_kind_of_model_begins_behind_its_pages(void **state)
{
    enum { N = 8 * EK_PAGE_TOKENS };
    static const struct {
        int window;
        bool full, sliding;
    } model[] = {{1, true, false}, {1, true, true}, {1, false, true}, {100, false, true}};
    static const struct {
        int n, cached; /* at least: a part of the last page needs its sliding layers, which may not have been kept */
    } prompt[] = {{N, N - EK_PAGE_TOKENS}, {N - 12, N - EK_PAGE_TOKENS}, {N + 1, N}, {EK_PAGE_TOKENS, 0}};
    (void)state;
    int32_t tokens[N + 1];
    heard h;
    fill(tokens, N + 1, 3);
    for (size_t m = 0; m < sizeof model / sizeof *model; m++) {
        fake f;
        place p = {0};
        fake_init(&f, model[m].window, model[m].full, model[m].sliding);
        assert_int_equal(ek_store_memory_open(&p.in, &f.layout, 1e8, NULL), EK_OK);
        const ek_store_backend b = {
            .arg = &p, .write = place_write, .read = place_read, .close = gate_close, .counts = p.in.counts};
        for (int i = -1; i < (int)(sizeof prompt / sizeof *prompt); i++) {
            const int n = i < 0 ? N + 1 : prompt[i].n;
            fake_init(&f, model[m].window, model[m].full, model[m].sliding);
            ek_engine *e = open_with(&f, &b, 2, 0);
            ek_request_opts o = ask_for(tokens, n, 2, &h);
            assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
            step_until_idle(e);
            int least = i < 0 ? 0 : prompt[i].cached;
            if (!model[m].full && least > 0) least = EK_PAGE_TOKENS; /* pages join one by one, and not all were kept */
            if (h.n_cached < least)
                fail_msg("model %zu, prompt of %d: %d cached, not %d", m, n, h.n_cached, least);
            ek_engine_close(e);
        }
        p.in.close(p.in.arg);
    }
}

/* --- memory for pages that are to come --- */

typedef struct readied {
    int end[EK_PAGE_KINDS];
    atomic_int pages[EK_PAGE_KINDS];
    atomic_bool wrong;
} readied;

static readied ready;

static void note_ready(void *arg, ek_layer_kind kind, int32_t first, int n)
{
    (void)arg;
    if (first != ready.end[kind] || n < 1) atomic_store(&ready.wrong, true);
    ready.end[kind] = first + n;
    atomic_fetch_add(&ready.pages[kind], n);
}

/* Each page once, in order, before a request has it, as many as one request may have at first and all of the pool at
 * most. */
static void memory_is_ready_before_pages_come(void **state)
{
    enum { POOL = 24, CTX = 10 * EK_PAGE_TOKENS };
    (void)state;
    fake f;
    gate g = {0};
    ek_store_backend b = gate_of(&g);
    int32_t tokens[CTX];
    heard h;
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    fake_init(&f, 100, true, true);
    ek_executor on = fake_executor(&f, POOL, POOL);
    on.ready_pages = note_ready;
    o.max_requests = 1, o.max_queue = 8, o.ctx_tokens = CTX, o.chunk = 90, o.cache_store = &b;
    ready = (readied){0};
    assert_int_equal(ek_engine_open_on(&e, &on, &o), EK_OK);
    for (double end = ek_now() + 5; atomic_load(&ready.pages[EK_FULL]) < 10 && ek_now() < end;) usleep(1000);
    assert_int_equal(atomic_load(&ready.pages[EK_FULL]), 10);
    assert_in_range(atomic_load(&ready.pages[EK_SLIDING]), 2, 10);
    for (int i = 0; i < 4; i++) {
        fill(tokens, CTX, 1 + (uint64_t)i);
        ek_request_opts r = ask_for(tokens, CTX - 20, 2, &h);
        assert_int_equal(ek_engine_submit(e, &r, NULL), EK_OK);
        step_until_idle(e);
    }
    for (double end = ek_now() + 5; atomic_load(&ready.pages[EK_FULL]) < POOL && ek_now() < end;) usleep(1000);
    assert_int_equal(atomic_load(&ready.pages[EK_FULL]), POOL);
    assert_in_range(atomic_load(&ready.pages[EK_SLIDING]), 2, POOL);
    ek_engine_close(e);
    assert_false(atomic_load(&ready.wrong));
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
        cmocka_unit_test(no_more_is_read_than_a_prompt_needs),
        cmocka_unit_test(every_kind_of_model_begins_behind_its_pages),
        cmocka_unit_test(memory_is_ready_before_pages_come),
        cmocka_unit_test(a_wrong_page_is_found_and_never_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
