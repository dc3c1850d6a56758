/* engine/shelf: whose pages are read from outside of memory when several requests lack some, and what waits for them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/store.h"
#include "heard.h"

enum { PAGES = 20, N = PAGES * EK_PAGE_TOKENS + 5, SHORT = EK_PAGE_TOKENS + 5 };

/* A place with pages in it, of which so many may be read; each takes its time. */
typedef struct place {
    ek_store_backend in;
    atomic_int may, reads;
    unsigned pause; /* microseconds */
    atomic_bool fixed;
} place;

static void place_write(void *arg, ek_store_page *const *page, int n)
{
    place *p = arg;
    if (!atomic_load(&p->fixed)) p->in.write(p->in.arg, page, n);
}

static void place_read(void *arg, ek_store_page *page, const bool want[EK_KIND_COUNT])
{
    place *p = arg;
    const int i = atomic_fetch_add(&p->reads, 1);
    usleep(p->pause);
    while (i >= atomic_load(&p->may)) usleep(200);
    p->in.read(p->in.arg, page, want);
}

static void close_nothing(void *arg)
{
    (void)arg;
}

static ek_store_backend open_place(place *p, fake *f)
{
    *p = (place){.may = 1 << 20};
    fake_init(f, 100, true, true);
    assert_int_equal(ek_store_memory_open(&p->in, &f->layout, 1e8, NULL), EK_OK);
    return (ek_store_backend){
        .arg = p, .write = place_write, .read = place_read, .close = close_nothing, .counts = p->in.counts};
}

static void send_in(ek_engine *e, const int32_t *tokens, int n, int max, uint64_t client, heard *h)
{
    ek_request_opts o = ask_for(tokens, n, max, h);
    o.client = client;
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
}

/* The pages of both prompts are in the place afterwards, which takes no more. */
static void write_pages(place *p, fake *f, const ek_store_backend *b, const int32_t *prompt, const int32_t *other)
{
    heard h;
    ek_engine *e = open_with(f, b, 2, 0);
    send_in(e, prompt, N, 2, 1, &h);
    step_until_idle(e);
    send_in(e, other, SHORT, 2, 1, &h);
    step_until_idle(e);
    ek_engine_close(e);
    atomic_store(&p->fixed, true);
    atomic_store(&p->reads, 0);
    fake_init(f, 100, true, true);
}

static bool step_until_read(ek_engine *e, place *p, int n)
{
    for (double end = ek_now() + 5; atomic_load(&p->reads) < n && ek_now() < end;) ek_engine_step(e);
    return atomic_load(&p->reads) >= n;
}

/* A client has a request that runs and another whose pages are read; a request of another client comes before that one
 * and lacks a page too. The first client's gets the rest of its pages later, each of them once. */
static void who_is_overtaken_asks_for_the_rest(void **state)
{
    (void)state;
    fake f;
    place p;
    static int32_t first[SHORT], prompt[N], other[SHORT];
    heard h[3];
    const ek_store_backend b = open_place(&p, &f);
    fill(first, SHORT, 1), fill(prompt, N, 2), fill(other, SHORT, 3);
    write_pages(&p, &f, &b, prompt, other);
    ek_engine *e = open_with(&f, &b, 1, 0);
    send_in(e, first, SHORT, 40, 1, &h[0]); /* its page is not there: one read */
    assert_true(step_until_read(e, &p, 1));
    while (h[0].tokens == 0) assert_true(ek_engine_step(e));
    atomic_store(&p.may, 4);
    send_in(e, prompt, N, 2, 1, &h[1]);
    assert_true(step_until_read(e, &p, 5)); /* three came, the fourth is on its way */
    send_in(e, other, SHORT, 2, 2, &h[2]);
    ek_engine_step(e);
    atomic_store(&p.may, 1 << 20);
    step_until_idle(e);
    assert_int_equal(h[2].n_cached, EK_PAGE_TOKENS);
    assert_int_equal(h[1].n_cached, PAGES * EK_PAGE_TOKENS);
    assert_in_range(atomic_load(&p.reads), 1 + PAGES + 1, 1 + PAGES + 1 + 4);
    ek_engine_close(e);
    p.in.close(p.in.arg);
}

/* While a page is read for one, others that lack none are answered. */
static void who_lacks_nothing_passes(void **state)
{
    (void)state;
    fake f;
    place p;
    static int32_t prompt[N], other[SHORT];
    heard h[3];
    const ek_store_backend b = open_place(&p, &f);
    fill(prompt, N, 2), fill(other, SHORT, 3);
    write_pages(&p, &f, &b, prompt, other);
    ek_engine *e = open_with(&f, &b, 2, 0);
    send_in(e, other, SHORT, 2, 1, &h[0]);
    step_until_idle(e);
    atomic_store(&p.may, atomic_load(&p.reads));
    send_in(e, prompt, N, 2, 1, &h[1]);
    send_in(e, other, SHORT, 2, 1, &h[2]);
    for (int i = 0; i < 200 && h[2].finish == EK_FINISH_NONE; i++) ek_engine_step(e);
    assert_int_not_equal(h[2].finish, EK_FINISH_NONE);
    assert_int_equal(h[1].tokens, 0);
    atomic_store(&p.may, 1 << 20);
    step_until_idle(e);
    assert_int_not_equal(h[1].finish, EK_FINISH_NONE);
    ek_engine_close(e);
    p.in.close(p.in.arg);
}

/* A place that answers slowly costs a second or two, and not some time of each prompt; and again only little later. */
static void a_slow_place_rests(void **state)
{
    enum { PROMPTS = 30 };
    (void)state;
    fake f;
    place p;
    static int32_t prompt[PROMPTS][SHORT];
    static heard h[PROMPTS];
    const ek_store_backend b = open_place(&p, &f);
    ek_engine *e = open_with(&f, &b, 4, 0);
    p.pause = 200000;
    const double begin = ek_now();
    for (int i = 0; i < PROMPTS; i += 5) {
        for (int k = i; k < i + 5; k++) {
            fill(prompt[k], SHORT, 10 + (uint64_t)k);
            send_in(e, prompt[k], SHORT, 2, 1, &h[k]);
        }
        step_until_idle(e);
    }
    assert_true(ek_now() - begin < 2.5); /* one after the other: 6 seconds */
    assert_in_range(atomic_load(&p.reads), 4, 10);
    for (int i = 0; i < PROMPTS; i++) assert_int_equal(h[i].tokens, 2);
    ek_engine_close(e);
    p.in.close(p.in.arg);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_overtaken_asks_for_the_rest),
        cmocka_unit_test(who_lacks_nothing_passes),
        cmocka_unit_test(a_slow_place_rests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
