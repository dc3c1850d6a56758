/* engine: requests that begin alike share pages, and none of them can tell.
 *
 *   test_reuse            what `make check` runs
 *   test_reuse SEEDS      so many random scenes
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/beside.h"
#include "asks.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "cache/store.h"

/* A prompt leaves an earlier one at every possible position, around every border of a page and of the window. */
static void a_prompt_may_leave_at_any_token(void **state)
{
    (void)state;
    static const int windows[] = {1, 2, 63, 64, 65, 100, 128, 200, 600};
    enum { LONG = 330, REPLY = 70 };
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (int left = 1; left <= LONG + REPLY; left += left % 64 > 60 || left % 64 < 4 || left > LONG - 8 ? 1 : 7) {
            fake f;
            memset(asks, 0, sizeof asks[0] * 4);
            fake_init(&f, windows[w], true, true);
            ek_engine *e = open_engine(&f, 64, 64, 2, 90);
            ask_fill(asks[0].prompt, LONG, 1);
            ask_greedy(&asks[0], &f, LONG, REPLY);
            assert_int_equal(ask_alone(e, &asks[0]), 0);
            for (int i = 1; i <= 3; i++) { /* the same beginning, three other ends; then the second again */
                memcpy(asks[i].prompt, asks[0].prompt, sizeof *asks[0].prompt * LONG);
                memcpy(asks[i].prompt + LONG, asks[0].want, sizeof *asks[0].want * REPLY);
                ask_fill(asks[i].prompt + left, 40, 100 + (uint64_t)(i == 3 ? 2 : i));
                int32_t there = left < LONG           ? asks[0].prompt[left]
                                : left < LONG + REPLY ? asks[0].want[left - LONG]
                                                      : 0;
                asks[i].prompt[left] = (there + (i == 3 ? 2 : i)) % FAKE_NAN; /* nobody's but the fourth's */
                ask_greedy(&asks[i], &f, left + 40, 9);
            }
            int written = LONG + REPLY - 1; /* the last token of a reply is never computed */
            int first = ask_alone(e, &asks[1]), known = left < written ? left : written;
            if (first > known || known - first >= windows[w] + 512)
                print_message("window %d, left at %d: %d of %d\n", windows[w], left, first, known);
            assert_true(first <= known && known - first < windows[w] + 512);
            if (windows[w] == 600 || (left >= LONG - 1 && left <= LONG)) assert_int_equal(first, known);
            assert_int_equal(ask_alone(e, &asks[2]), left); /* the second that leaves there made it a place to begin */
            assert_int_equal(ask_alone(e, &asks[3]),
                             left + 40 - 1); /* all of it but the token whose logits are wanted */
            ek_engine_close(e);
        }
}

/* The same prompt, shorter and longer ones. */
static void every_prefix_and_every_extension_hits(void **state)
{
    (void)state;
    fake f;
    memset(asks, 0, sizeof asks[0] * 2);
    fake_init(&f, 500, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 2, 90);
    ask_fill(asks[0].prompt, MAX_PROMPT, 3);
    ask_greedy(&asks[0], &f, 300, 1);
    assert_int_equal(ask_alone(e, &asks[0]), 0);
    for (int n = 1; n <= 300; n++) {
        memcpy(asks[1].prompt, asks[0].prompt, sizeof asks[0].prompt);
        ask_greedy(&asks[1], &f, n, 1);
        assert_int_equal(ask_alone(e, &asks[1]), n - 1);
    }
    for (int n = 301; n <= MAX_PROMPT; n += 1 + n % 5) {
        ask_greedy(&asks[1], &f, n, 1);
        int before = asks[1].n_prompt > 301 ? ask_alone(e, &asks[1]) : -1;
        if (before >= 0) assert_true(before >= 300);
        assert_int_equal(ask_alone(e, &asks[1]), n - 1);
    }
    ek_engine_close(e);
}

static void salts_keep_tenants_apart(void **state)
{
    (void)state;
    fake f;
    memset(asks, 0, sizeof asks[0]);
    fake_init(&f, 100, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 2, 90);
    ask_fill(asks[0].prompt, 200, 4);
    for (int round = 0; round < 2; round++)
        for (uint64_t salt = 0; salt < 5; salt++) {
            ask_greedy(&asks[0], &f, 200, 3);
            asks[0].salt = salt * 0x123456789abcdef;
            assert_int_equal(ask_alone(e, &asks[0]), round ? 199 : 0);
        }
    ek_engine_close(e);
}

/* The tokens of two images are the same; the images are not. */
static void contents_are_part_of_the_key(void **state)
{
    (void)state;
    static float image[2][50][FAKE_HIDDEN];
    for (int i = 0; i < 50; i++) image[0][i][0] = image[1][i][0] = (float)i;
    image[1][49][2] = 1; /* the last float of the last row */
    for (int mutual = 0; mutual < 2; mutual++) {
        fake f;
        memset(asks, 0, sizeof asks[0]);
        fake_init(&f, 300, true, true);
        ek_engine *e = open_engine(&f, 64, 64, 2, 90);
        ask_fill(asks[0].prompt, 250, 5);
        static const int want[] = {0, 80, 249, 249, 80, 81, 249};
        for (int i = 0; i < 7; i++) {
            asks[0].span[0] = (ek_prompt_span){80, 130, image[i & 1][0], {[EK_SLIDING] = mutual}, false};
            asks[0].n_spans = i == 4 || i == 6 ? 0 : 1; /* plain text */
            if (i == 2) asks[0].span[0].embedding = image[0][0];
            if (i == 3) asks[0].span[0].embedding = image[1][0];
            if (i == 5) asks[0].span[0].first = 81, asks[0].span[0].embedding = image[0][1];
            ask_greedy(&asks[0], &f, 250, 3);
            int got = ask_alone(e, &asks[0]);
            assert_int_equal(got, want[i]);
        }
        /* one token before the end of a span whose positions see each other */
        asks[0].span[0] = (ek_prompt_span){80, 130, image[0][0], {[EK_SLIDING] = mutual}, false};
        asks[0].n_spans = 1;
        ask_greedy(&asks[0], &f, 130, 3);
        assert_int_equal(ask_alone(e, &asks[0]), mutual ? 80 : 129);
        ek_engine_close(e);
    }
}

/* Prompt logits are computed, each, however much of the prompt is cached. */
static void prompt_logits_are_never_cached(void **state)
{
    (void)state;
    fake f;
    memset(asks, 0, sizeof asks[0]);
    fake_init(&f, 100, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 2, 90);
    ask_fill(asks[0].prompt, 300, 6);
    for (int from = 300; from >= 0; from -= 13) {
        ask_greedy(&asks[0], &f, 300, 3);
        asks[0].prompt_logits_from = from;
        int got = ask_alone(e, &asks[0]);
        assert_true(got <= from && got < 300);
        assert_int_equal(ask_alone(e, &asks[0]), from == 300 ? 299 : from); /* it may begin there from now on */
    }
    ek_engine_close(e);
}

/* A step that failed leaves nothing; the requests beside it do. */
static void failed_requests_leave_nothing(void **state)
{
    (void)state;
    fake f;
    memset(asks, 0, sizeof asks[0] * 2);
    fake_init(&f, 100, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 2, 90);
    for (int i = 0; i < 2; i++) ask_fill(asks[i].prompt, 50, 60 + (uint64_t)i), ask_greedy(&asks[i], &f, 50, 3);
    asks[0].prompt[49] = FAKE_FAILS;
    asks[0].broken = true;
    submit(e, &asks[0]);
    assert_int_equal(ask_alone(e, &asks[1]), 0);
    check(&asks[0]);
    asks[0].prompt[49] = 3;
    asks[0].finish = EK_FINISH_NONE;
    asks[0].broken = false;
    ask_greedy(&asks[0], &f, 50, 3);
    assert_int_equal(ask_alone(e, &asks[0]), 0);
    ask_greedy(&asks[1], &f, 50, 3);
    assert_int_equal(ask_alone(e, &asks[1]), 49);
    ek_engine_close(e);
}

/* 64 requests on a pool for 6: all finish, as alone. */
static void many_requests_on_a_small_pool(void **state)
{
    (void)state;
    enum { MANY = 64 };
    static ask many[MANY];
    uint64_t preempted = 0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        fake f;
        memset(many, 0, sizeof many);
        fake_init(&f, 70, true, true);
        ek_engine *e = open_engine(&f, 6 * 5, 6 * 4, 24, 64); /* 5 pages: a prompt of 200 and its reply */
        for (int i = 0; i < MANY; i++) {
            ask_fill(many[i].prompt, 200, seed);
            ask_fill(many[i].prompt + i % 200, 200 - i % 200, seed * 1000 + (uint64_t)i);
            ask_greedy(&many[i], &f, 150 + i % 50, 100);
            if (seed % 2) many[i].sampling.temperature = 1, many[i].sampling.seed = (uint64_t)i;
            set_want(&many[i], 4096);
            submit(e, &many[i]);
        }
        run_and_check(e, &f);
        for (int i = 0; i < MANY; i++) check(&many[i]);
        ek_engine_stats stats;
        ek_engine_stats_read(e, &stats);
        preempted += stats.preempted;
        assert_true(stats.cache_hits > 0 && stats.cache_evicted_pages > 0);
        ek_engine_close(e);
    }
    assert_true(preempted > 0);
}

/* Short of pages, the index gives up what nobody uses, however recent, before what a request uses: the latter's pages
 * would stay where they are, and prompts that begin like it would no longer find them. */
static void pages_in_use_stay_known(void **state)
{
    (void)state;
    enum { LONG = 320, OTHERS = 6, OTHER = 200, AGAIN = 300 };
    fake f;
    memset(asks, 0, sizeof asks[0] * (OTHERS + 2));
    fake_init(&f, 100, true, false);
    ek_engine *e = open_engine(&f, 12, 0, 3, 64);
    ask_fill(asks[0].prompt, LONG, 1);
    ask_greedy(&asks[0], &f, LONG, 100);
    submit(e, &asks[0]);
    while (asks[0].n_got == 0) ek_engine_step(e);
    for (int i = 1; i <= OTHERS + 1; i++) {
        if (i <= OTHERS) ask_fill(asks[i].prompt, OTHER, 1 + (uint64_t)i);
        else memcpy(asks[i].prompt, asks[0].prompt, sizeof asks[0].prompt);
        ask_greedy(&asks[i], &f, i <= OTHERS ? OTHER : AGAIN, 2);
        submit(e, &asks[i]);
        while (asks[i].finish == EK_FINISH_NONE) ek_engine_step(e);
        check_cache(e, &f);
        check(&asks[i]);
    }
    assert_int_equal(asks[0].finish, EK_FINISH_NONE);
    assert_true(asks[0].n_got < 64); /* it filled no page since, which would have made all of them known again */
    assert_int_equal(asks[OTHERS + 1].n_cached, AGAIN - 1);
    run_and_check(e, &f);
    check(&asks[0]);
    ek_engine_stats stats;
    ek_engine_stats_read(e, &stats);
    assert_true(stats.cache_evicted_pages > OTHERS && stats.preempted == 0);
    ek_engine_close(e);
}

/* --- pages on disk: here a table in memory that forgets some and is slow at times */

enum { SHELF = 1 << 13 };
typedef struct shelf {
    struct {
        ek_chain chain;
        bool has[EK_KIND_COUNT];
        uint8_t bytes[EK_KIND_COUNT][EK_PAGE_TOKENS * sizeof(uint64_t)];
    } page[SHELF];
    int n, closed;
    uint64_t seed, calls;
    fake *f;
    ek_store_counts counts;
} shelf;

static void shelf_write(void *arg, ek_store_page *const *page, int n)
{
    shelf *s = arg;
    for (int i = 0; i < n; i++) {
        int at = 0;
        while (at < s->n && memcmp(&s->page[at].chain, &page[i]->chain, sizeof(ek_chain)) != 0) at++;
        if (at == SHELF) continue;
        if (at == s->n) s->n++;
        s->page[at].chain = page[i]->chain;
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            if (!page[i]->has[k]) continue;
            s->page[at].has[k] = true;
            memcpy(s->page[at].bytes[k], page[i]->bytes[k], s->f->layout.page_bytes[k]);
        }
    }
    atomic_fetch_add(&s->counts.written, (unsigned)n);
}

static void shelf_read(void *arg, ek_store_page *page, const bool want[EK_KIND_COUNT])
{
    shelf *s = arg;
    uint64_t r = ek_mix64(s->seed + s->calls++);
    if (r % 64 == 0) usleep(3000);
    if (r % 16 == 1) return;
    for (int at = 0; at < s->n; at++) {
        if (memcmp(&s->page[at].chain, &page->chain, sizeof(ek_chain)) != 0) continue;
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            page->has[k] = want[k] && s->page[at].has[k];
            if (page->has[k]) memcpy(page->bytes[k], s->page[at].bytes[k], s->f->layout.page_bytes[k]);
        }
        atomic_fetch_add(&s->counts.read, 1);
    }
}

static void shelf_close(void *arg)
{
    ((shelf *)arg)->closed++;
}

static shelf disk;

static ek_store_backend shelf_of(fake *f, uint64_t seed)
{
    disk.seed = seed;
    disk.f = f;
    return (ek_store_backend){
        .arg = &disk, .write = shelf_write, .read = shelf_read, .close = shelf_close, .counts = &disk.counts};
}

/* What was cached is there after a restart, in whole pages, and the rest is as it was. */
static void prefixes_survive_a_restart(void **state)
{
    (void)state;
    int hits = 0;
    for (int window = 1; window < 400; window += 57) {
        fake f;
        memset(&disk, 0, sizeof disk);
        memset(asks, 0, sizeof asks[0]);
        ask_fill(asks[0].prompt, 500, 9);
        for (int round = 0; round < 6; round++) {
            fake_init(&f, window, true, true);
            ek_store_backend b = shelf_of(&f, (uint64_t)(window + round));
            ek_executor on = fake_executor(&f, 64, 64);
            ek_engine_opts o = ek_engine_defaults();
            ek_engine *e;
            o.chunk = 70;
            o.cache_store = &b;
            assert_int_equal(ek_engine_open_on(&e, &on, &o), EK_OK);
            ask_greedy(&asks[0], &f, 500, 3);
            int cached = ask_alone(e, &asks[0]);
            assert_true(cached <= 448 && (cached == 0 || round > 0));
            hits += cached == 448;
            ek_engine_close(e);
            assert_int_equal(disk.closed, round + 1);
        }
    }
    assert_true(hits > 5);
}

/* The engine rests when the only request is cancelled while its pages are being read. */
static void a_cancelled_load_ends(void **state)
{
    (void)state;
    memset(&disk, 0, sizeof disk);
    memset(asks, 0, sizeof asks[0]);
    ask_fill(asks[0].prompt, 500, 9);
    for (int round = 0; round < 2; round++) {
        fake f;
        fake_init(&f, 100, true, true);
        ek_store_backend b = shelf_of(&f, 5);
        ek_executor on = fake_executor(&f, 64, 64);
        ek_engine_opts o = ek_engine_defaults();
        ek_engine *e;
        o.cache_store = &b;
        assert_int_equal(ek_engine_open_on(&e, &on, &o), EK_OK);
        ask_greedy(&asks[0], &f, 500, 3);
        asks[0].finish = EK_FINISH_NONE;
        if (round == 0) {
            ask_alone(e, &asks[0]);
        } else {
            submit(e, &asks[0]);
            ek_engine_step(e); /* begins to read */
            ek_engine_cancel(e, asks[0].id);
            int steps = 0;
            while (ek_engine_step(e)) assert_true(++steps < 100);
        }
        ek_engine_close(e);
    }
}

/* --- everything at random */

typedef struct tally {
    uint64_t preempted, hits, tokens, evicted, read, host, audits, drafted, accepted, followed, prompts;
} tally;

/* A prompt that begins like another's prompt and reply, cut anywhere, or like none. */
static void grow_alike(int i, const fake *f, uint64_t s, int longest)
{
    ask *a = &asks[i];
    grow(a, f, s, s % 3 == 0 ? MAX_PROMPT : 90);
    if (s >> 14 & 1) grow_spans(a, s, longest);
    a->salt = s >> 50 & 7 ? 0 : 77;
    if (i == 0 || (s >> 40 & 7) == 0) return;
    const ask *b = &asks[(s >> 32) % (uint64_t)i];
    if (b->broken) return;
    static int32_t whole[MAX_PROMPT + MAX_REPLY];
    memcpy(whole, b->prompt, sizeof *whole * (size_t)b->n_prompt);
    memcpy(whole + b->n_prompt, b->want, sizeof *whole * (size_t)b->n_want);
    int n = b->n_prompt + b->n_want, cut = (s >> 20 & 3) == 0 ? n : 1 + (int)((s >> 22) % (uint64_t)n);
    int tail = (int)(ek_mix64(s) % 70);
    if (cut > MAX_PROMPT - tail) cut = MAX_PROMPT - tail;
    int32_t end[70];
    for (int k = 0; k < tail; k++) end[k] = (int32_t)(ek_mix64(s + (uint64_t)k) % FAKE_NAN);
    memcpy(a->prompt, whole, sizeof *whole * (size_t)cut);
    memcpy(a->prompt + cut, end, sizeof *end * (size_t)tail);
    a->n_prompt = cut + tail;
    a->prompt_logits_from = s >> 23 & 1 ? a->n_prompt : (int)((s >> 25) % (uint64_t)(a->n_prompt + 1));
    a->n_spans = 0;
    for (int k = 0; k < b->n_spans && b->span[k].end <= cut; k++) a->span[a->n_spans++] = b->span[k];
    /* what the cut went through is text now */
}

static void run_scene(uint64_t seed, tally *t, bool again)
{
    uint64_t r = ek_mix64(seed ^ 0xcac4e);
    fake f;
    ek_store_backend store = shelf_of(&f, seed);
    int window = 1 + (int)(ek_mix64(r) % (r >> 60 & 1 ? 20 : 300)), kinds = (int)(r % 7);
    fake_init(&f, window, kinds != 1, kinds != 2);
    int n = 1 + (int)((r >> 8) % MAX_REQUESTS), chunk = 1 + (int)((r >> 16) % 300), n_arrived = 0;
    int whole = (MAX_PROMPT + MAX_REPLY + 63) / 64;
    int full = whole + (int)((r >> 32) % (r >> 61 & 1 ? 6 : 60)), sliding = (window + 62) / 64 + 2;
    sliding += (int)((r >> 40) % (r >> 62 & 1 ? 6 : 60));
    uint64_t first = ek_mix64(seed ^ 0x57a27), d = ek_mix64(seed ^ 0xd4af7);
    int n_start = 1 + (int)((first >> 8) % 4);
    if (first & 1) fake_set_start(&f, n_start, first >> 16 & 1 ? 0 : n_start + (int)((first >> 20) % 8));
    if (d >> 16 & 3) f.guess = guess_at_random;
    if ((d >> 18 & 3) == 0) f.row_cost = 0.2f;
    int longest = chunk;
    while (longest > 1 && ek_page_table_max(&f.layout, EK_SLIDING, MAX_PROMPT + MAX_REPLY, longest) > sliding)
        longest--;
    ek_executor on = fake_executor(&f, full, sliding);
    ek_engine_opts o = ek_engine_defaults();
    ek_engine *e;
    beside b = {0};
    if (ek_mix64(seed ^ 0xbe51de) & 1) { /* steps begin ahead */
        f.beside = &b;
        on = beside_executor(&b, on);
    }
    const bool texts = f.beside && ek_mix64(seed ^ 0x7e575) & 1; /* of which steps of a prompt begin ahead, too */
    o.max_requests = 1 + (int)((r >> 48) % 12);
    o.chunk = texts ? 1 + chunk / 8 : chunk;
    if (again || seed % 4 == 0) o.cache_store = &store;
    if (seed % 4 == 1 || seed % 8 == 4) { /* host memory: alone, or before the disk */
        const ek_store_backend below = store;
        const double bytes = 4000 + (double)(ek_mix64(seed ^ 0x4057) % 200000);
        assert_int_equal(ek_store_memory_open(&store, &f.layout, bytes, o.cache_store ? &below : NULL), EK_OK);
        o.cache_store = &store;
    }
    if (seed % 3 == 0) o.cache_audit = 0.7;
    if (r >> 55 & 1) o.cache_bytes = (double)((r >> 20) % 40) * EK_PAGE_TOKENS * sizeof(uint64_t) + 1;
    o.draft = (ek_draft_mode)(d % 3);
    o.draft_max = 1 + (int)((d >> 8) % 12);
    assert_int_equal(ek_engine_open_on(&e, &on, &o), EK_OK);
    guess_for = e;
    for (int i = 0; i < n; i++) {
        uint64_t s = ek_mix64(seed * 100 + (uint64_t)i);
        grow_alike(i, &f, s, longest);
        if (texts) asks[i].n_spans = 0, asks[i].prompt_logits_from = asks[i].n_prompt;
        asks[i].cancel = s >> 8 & 1 && s >> 9 & 1;
        if ((s >> 10 & 15) == 0) asks[i].broken = true, asks[i].prompt[asks[i].n_prompt - 1] = FAKE_FAILS;
        if (asks[i].broken) asks[i].prompt_logits_from = asks[i].n_prompt;
        set_want(&asks[i], 4096);
    }
    bool worked = true;
    for (uint64_t step = 0; worked || n_arrived < n; step++) {
        uint64_t s = ek_mix64(seed * 7919 + step);
        int max = (int)(r >> 57 & 3); /* many at once, or one after another */
        for (int k = (int)(s % (uint64_t)(max + 1)) - (max < 2 && worked); k > 0 && n_arrived < n; k--)
            submit(e, &asks[n_arrived++]);
        if (!worked && n_arrived < n) submit(e, &asks[n_arrived++]);
        ask *victim = &asks[(s >> 8) % (uint64_t)n];
        if (victim->cancel && (s >> 20) % 16 == 0) ek_engine_cancel(e, victim->id);
        worked = ek_engine_step(e);
        if (step % 16 == seed % 16 || !worked) check_cache(e, &f);
        if (step >= 100000)
            fail_msg("seed %llu: %d of %d requests arrived, no end", (unsigned long long)seed, n_arrived, n);
    }
    for (int i = 0; i < n; i++) check(&asks[i]);
    ek_engine_stats stats;
    ek_engine_stats_read(e, &stats);
    for (int k = 0; k < EK_PAGE_KINDS; k++) assert_int_equal(stats.pages_used[k], 0);
    t->preempted += stats.preempted;
    t->hits += stats.cache_hits;
    t->tokens += stats.cache_tokens;
    t->evicted += stats.cache_evicted_pages;
    t->read += stats.disk_read;
    t->host += stats.host_read;
    t->audits += stats.cache_audits;
    t->drafted += stats.drafted_tokens;
    t->accepted += stats.accepted_tokens;
    assert_int_equal(stats.cache_audit_mismatches, 0);
    ek_engine_close(e);
    t->followed += b.followed, t->prompts += b.prompts;
}

static uint64_t n_seeds = 50, first_seed;

static void reuse_does_not_matter(void **state)
{
    (void)state;
    tally t = {0};
    for (uint64_t seed = first_seed; seed < first_seed + n_seeds; seed++) {
        memset(&disk, 0, sizeof disk);
        run_scene(seed, &t, false);
        if (seed % 4 == 0) run_scene(seed, &t, true); /* after a restart */
    }
    printf(
        "%llu scenes: %llu hits, %llu tokens, %llu pages evicted, %llu preempted, %llu pages from disk, %llu from host memory, %llu audits, "
        "%llu of %llu drafted tokens accepted\n",
        (unsigned long long)n_seeds, (unsigned long long)t.hits, (unsigned long long)t.tokens,
        (unsigned long long)t.evicted, (unsigned long long)t.preempted, (unsigned long long)t.read,
        (unsigned long long)t.host, (unsigned long long)t.audits, (unsigned long long)t.accepted,
        (unsigned long long)t.drafted);
    printf("%llu steps begun ahead, with %llu rows of prompts\n", (unsigned long long)t.followed,
           (unsigned long long)t.prompts);
    assert_true(t.prompts > 20 * n_seeds);
    assert_true(t.accepted > 4 * n_seeds && t.drafted - t.accepted > 4 * n_seeds);
    assert_true(t.read > n_seeds && t.host > n_seeds / 4 && t.audits > n_seeds / 4);
    assert_true(t.hits > n_seeds && t.tokens > 100 * n_seeds && t.evicted > n_seeds && t.preempted >= n_seeds / 50);
}

int main(int argc, char **argv)
{
    ek_log_set(EK_LOG_ERROR);
    if (argc > 1) n_seeds = strtoull(argv[1], NULL, 0);
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_may_leave_at_any_token), cmocka_unit_test(every_prefix_and_every_extension_hits),
        cmocka_unit_test(salts_keep_tenants_apart),        cmocka_unit_test(contents_are_part_of_the_key),
        cmocka_unit_test(prompt_logits_are_never_cached),  cmocka_unit_test(failed_requests_leave_nothing),
        cmocka_unit_test(prefixes_survive_a_restart),      cmocka_unit_test(a_cancelled_load_ends),
        cmocka_unit_test(many_requests_on_a_small_pool),   cmocka_unit_test(pages_in_use_stay_known),
        cmocka_unit_test(reuse_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
