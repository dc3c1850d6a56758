/* engine/shelf: what is asked of a place outside of memory, and how much memory is made ready for what comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/store.h"
#include "heard.h"

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

static void close_nothing(void *arg)
{
    (void)arg;
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
        .arg = &p, .write = place_write, .read = place_read, .close = close_nothing, .counts = p.in.counts};
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
            .arg = &p, .write = place_write, .read = place_read, .close = close_nothing, .counts = p.in.counts};
        for (int i = -1; i < (int)(sizeof prompt / sizeof *prompt); i++) {
            const int n = i < 0 ? N + 1 : prompt[i].n;
            fake_init(&f, model[m].window, model[m].full, model[m].sliding);
            ek_engine *e = open_with(&f, &b, 2, 0);
            ek_request_opts o = ask_for(tokens, n, 2, &h);
            assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
            step_until_idle(e);
            int least = i < 0 ? 0 : prompt[i].cached;
            if (!model[m].full && least > 0) least = EK_PAGE_TOKENS; /* pages join one by one, and not all were kept */
            if (h.n_cached < least) fail_msg("model %zu, prompt of %d: %d cached, not %d", m, n, h.n_cached, least);
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

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_more_is_read_than_a_prompt_needs),
        cmocka_unit_test(every_kind_of_model_begins_behind_its_pages),
        cmocka_unit_test(memory_is_ready_before_pages_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
