/* serve/events: addresses, the bytes of a batch, and replays that leave no gap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "serve/events/events.h"
#include "serve/events/replay.h"

static void addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *endpoint;
        bool must_bind, bind, open;
    } good[] = {
        {"tcp://*:5557", "tcp://*:5557", false, true, true},
        {"tcp://*:0", "tcp://*:*", false, true, true},
        {"tcp://127.0.0.1:5557", "tcp://127.0.0.1:5557", false, false, false},
        {"@tcp://127.0.0.1:5557", "tcp://127.0.0.1:5557", false, true, false},
        {"@tcp://127.0.0.2:0", "tcp://127.0.0.2:*", false, true, false},
        {"@tcp://10.0.0.7:1", "tcp://10.0.0.7:1", false, true, true},
        {"tcp://127.0.0.1:5558", "tcp://127.0.0.1:5558", true, true, false},
        {"tcp://router.svc.cluster.local:65535", "tcp://router.svc.cluster.local:65535", false, false, false},
        {"tcp://[::1]:5557", "tcp://[::1]:5557", true, true, false},
        {"tcp://[::]:5557", "tcp://[::]:5557", false, true, true},
        {"tcp://[fe80::1]:5557", "tcp://[fe80::1]:5557", false, false, false},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ek_events_address a;
        if (ek_events_address_parse(&a, "--kv-events", good[i].text, good[i].must_bind)) fail_msg("%s", ek_err_text());
        assert_string_equal(a.endpoint, good[i].endpoint);
        assert_int_equal(a.bind, good[i].bind);
        assert_int_equal(a.open, good[i].open);
    }
    static const char *const bad[] = {
        "",
        "tcp://",
        "5557",
        "localhost:5557",
        "tcp://*",
        "tcp://:5557",
        "tcp://h:",
        "tcp://h:x",
        "tcp://h:65536",
        "tcp://h:-1",
        "tcp://h:1 ",
        "tcp://a b:1",
        "ipc:///tmp/x",
        "@",
        "@@tcp://h:1",
        "tcp://h:0",
        "tcp://[::1:5",
        "tcp://[]:5",
        "tcp://[1.2.3.4]:5",
        "tcp://h:123456",
        "udp://h:1",
        "tcp://h/x:1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_events_address a;
        if (!ek_events_address_parse(&a, "--kv-events", bad[i], false)) fail_msg("\"%s\" was taken", bad[i]);
        assert_memory_equal(ek_err_text(), "--kv-events ", 12);
    }
    char longer[1000];
    ek_events_address a;
    memset(longer, 'a', sizeof longer);
    memcpy(longer, "tcp://", 6);
    memcpy(longer + 990, ":1", 3);
    assert_int_equal(ek_events_address_parse(&a, "--kv-replay", longer, true), EK_EINVAL);
    assert_true(strlen(ek_err_text()) < 250); /* the value is cut */
}

#ifdef EK_HAVE_EVENTS

static ek_held_change page(uint64_t hash, uint64_t parent)
{
    ek_held_change c = {.came = true, .page = {.hash = hash, .parent = parent, .first = parent == 0}};
    for (int i = 0; i < EK_PAGE_TOKENS; i++) c.page.token[i] = i;
    return c;
}

static void add_tokens(ek_buf *b)
{
    for (int i = 0; i < EK_PAGE_TOKENS; i++) ek_buf_char(b, (char)i);
}

#define TIME         "\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00" /* 1.5 */
#define HASH_1       "\xcf\x00\x00\x00\x00\x00\x00\x00\x01" /* 8 bytes, although 1 has room in one */
#define HASH_2       "\xcf\xff\xff\xff\xff\xff\xff\xff\xfe"
#define ADD(b, text) ek_buf_add(b, text, sizeof text - 1)

static void is(const ek_buf *got, const ek_buf *want)
{
    assert_int_equal(got->len, want->len);
    assert_memory_equal(got->data, want->data, want->len);
}

/* As vLLM's consumers read them: maps with a type, 8-byte hashes, what follows each other in one event. */
static void bytes_of_maps(void **state)
{
    (void)state;
    ek_held_change c[4] = {page(1, 0), page(UINT64_MAX - 1, 1), {.page.hash = UINT64_MAX - 1}, {.page.hash = 1}};
    ek_buf got = {0}, want = {0};
    ADD(&want, "\x93" TIME "\x93\x81\xa4type\xb0"
               "AllBlocksCleared");
    ADD(&want, "\x89\xa4type\xab"
               "BlockStored\xac"
               "block_hashes\x92" HASH_1 HASH_2 "\xb1parent_block_hash\xc0\xa9token_ids\xdc\x00\x80");
    add_tokens(&want), add_tokens(&want);
    ADD(&want, "\xaa"
               "block_size\x40\xa7lora_id\xc0\xa6medium\xa3GPU\xa9lora_name\xc0\xaa"
               "extra_keys\x92\xc0\xc0");
    ADD(&want, "\x83\xa4type\xac"
               "BlockRemoved\xac"
               "block_hashes\x92" HASH_2 HASH_1 "\xa6medium\xa3GPU");
    ADD(&want, "\x00");
    ek_events_write(&got, false, 1.5, true, c, 4);
    is(&got, &want);
    ek_buf_clear(&got), ek_buf_clear(&want);
    ADD(&want, "\x93" TIME "\x90\x00"); /* nothing happened: what a replay fills numbers with */
    ek_events_write(&got, false, 1.5, false, NULL, 0);
    is(&got, &want);
    ek_buf_fini(&got), ek_buf_fini(&want);
}

static void bytes_of_arrays(void **state)
{
    (void)state;
    ek_held_change c[3] = {page(UINT64_MAX - 1, 1), page(1, 0), {.page.hash = 1}};
    c[1].page.salt = ek_salt_name_make("abc", 3);
    c[1].page.n_media = 1, c[1].page.media[0] = 0xab;
    ek_buf got = {0}, want = {0};
    ADD(&want, "\x93" TIME "\x94\x91\xb0"
               "AllBlocksCleared\x97\xab"
               "BlockStored\x91" HASH_2 HASH_1 "\xdc\x00\x40");
    add_tokens(&want);
    ADD(&want, "\x40\xc0\xa3GPU\x99\xab"
               "BlockStored\x91" HASH_1 "\xc0\xdc\x00\x40");
    add_tokens(&want);
    ADD(&want, "\x40\xc0\xa3GPU\xc0\x91\x92\xb0"
               "00000000000000ab\xa3"
               "abc\x93\xac"
               "BlockRemoved\x91" HASH_1 "\xa3GPU\x00");
    ek_events_write(&got, true, 1.5, true, c, 3);
    is(&got, &want);
    ek_salt_name_release(c[1].page.salt);
    ek_buf_fini(&got), ek_buf_fini(&want);
}

/* --- replays: a world of random changes; the payloads are looked at by their first bytes and counted */

enum { WORLD = 400 };

typedef struct world {
    uint64_t seed, drawn;
    ek_history history;
    ek_mirror mirror;
    ek_replays replays;
    bool arrays;
    bool held[WORLD]; /* page i: hash i + 1, parent i / 3 */
    uint64_t want;    /* the number that has to come next */
    bool ended, later, knows[WORLD];
    int n_sent;
} world;

static int draw(world *w, int n)
{
    return (int)(ek_mix64(w->seed * 7919 + w->drawn++) % (uint64_t)n);
}

static bool has_child(const world *w, int i)
{
    for (int k = 3 * (i + 1); k < 3 * (i + 1) + 3 && k < WORLD; k++)
        if (w->held[k]) return true;
    return false;
}

static uint64_t parent_of(int i)
{
    return i < 3 ? 0 : (uint64_t)(i / 3); /* page i / 3 - 1 */
}

static void publish(world *w)
{
    ek_held_change c[8];
    int n = 0;
    for (int i; n < 1 + draw(w, 8) && n < 8;) {
        i = draw(w, WORLD);
        if (!w->held[i] && (i < 3 || w->held[i / 3 - 1])) c[n++] = page((uint64_t)i + 1, parent_of(i));
        else if (w->held[i] && !has_child(w, i)) c[n++] = (ek_held_change){.page.hash = (uint64_t)i + 1};
        else continue;
        w->held[i] = c[n - 1].came;
    }
    ek_buf payload = {0};
    ek_events_write(&payload, w->arrays, 1.5, w->history.next == 0, c, n);
    for (int i = 0; i < n; i++) ek_mirror_apply(&w->mirror, &c[i]);
    ek_history_add(&w->history, &payload);
}

/* A reader of array form that knows just what is written here. */
static const uint8_t *skip_to(const uint8_t *p, const uint8_t *end, const char *word)
{
    size_t n = strlen(word);
    for (; p + n <= end; p++)
        if (!memcmp(p, word, n)) return p + n;
    return NULL;
}

static uint64_t hash_at(const uint8_t **p)
{
    uint64_t h = 0;
    assert_int_equal(*(*p)++, 0xcf);
    for (int i = 0; i < 8; i++) h = h << 8 | *(*p)++;
    return h;
}

static int list_at(const uint8_t **p)
{
    int n = *(*p)++;
    if (n >> 4 == 9) return n & 15;
    assert_int_equal(n, 0xdc);
    n = (*p)[0] << 8 | (*p)[1];
    *p += 2;
    return n;
}

static void apply(world *w, const uint8_t *p, const uint8_t *end)
{
    p += 10; /* [time, */
    for (int n = list_at(&p); n > 0; n--) {
        const uint8_t *stored = skip_to(p, end, "BlockStored"), *gone = skip_to(p, end, "BlockRemoved"),
                      *cleared = skip_to(p, end, "AllBlocksCleared");
        if (cleared && (!stored || cleared < stored) && (!gone || cleared < gone)) {
            memset(w->knows, 0, sizeof w->knows);
            p = cleared;
        } else if (stored && (!gone || stored < gone)) {
            p = stored;
            int k = list_at(&p);
            const uint8_t *hashes = p;
            p += 9 * k;
            uint64_t parent = *p == 0xc0 ? (uint64_t)(p++, 0) : hash_at(&p);
            for (; k > 0; k--) {
                uint64_t h = hash_at(&hashes);
                assert_true(h >= 1 && h <= WORLD && !w->knows[h - 1]);
                assert_int_equal(parent_of((int)h - 1), parent);
                if (parent) assert_true(w->knows[parent - 1]);
                w->knows[h - 1] = true;
                parent = h;
            }
        } else {
            assert_non_null(gone);
            p = gone;
            for (int k = list_at(&p); k > 0; k--) {
                uint64_t h = hash_at(&p);
                assert_true(w->knows[h - 1]);
                w->knows[h - 1] = false;
            }
        }
    }
}

static ek_replay_sent deliver(void *arg, ek_events_frame peer, uint64_t number, ek_events_frame payload)
{
    world *w = arg;
    assert_int_equal(peer.n, 4);
    assert_false(w->ended);
    if (w->later && draw(w, 3) == 0) return EK_REPLAY_LATER;
    if (!payload.data) {
        assert_int_equal(number, UINT64_MAX);
        w->ended = true;
        return EK_REPLAY_SENT;
    }
    assert_int_equal(number, w->want);
    w->want++;
    w->n_sent++;
    apply(w, payload.data, (const uint8_t *)payload.data + payload.n);
    return EK_REPLAY_SENT;
}

static void knows_all(const world *w)
{
    for (int i = 0; i < WORLD; i++)
        if (w->knows[i] != w->held[i]) fail_msg("page %d: known %d, held %d", i, w->knows[i], w->held[i]);
}

/* As if it had been too much to remember. */
static void forget(world *w)
{
    while (w->history.next - w->history.first > (uint64_t)draw(w, 20) + 1) {
        ek_buf *b = &w->history.item[w->history.first++ % EK_HISTORY_BATCHES];
        ek_buf_fini(b);
        *b = (ek_buf){0};
    }
}

/* Asked at any time, from any number, with batches that are published and forgotten meanwhile: consecutive numbers,
 * and at the end what is held. */
static void walk(uint64_t seed, int batches, bool forgets)
{
    world *w = ek_alloc(sizeof *w);
    w->seed = seed;
    w->arrays = true;
    w->replays = (ek_replays){
        .history = &w->history, .mirror = &w->mirror, .arrays = w->arrays, .send = deliver, .arg = w};
    const ek_events_frame peer = {"peer", 4};
    for (int i = 0; i < batches; i++) publish(w);
    for (int tries = 0; tries < 20; tries++) {
        if (forgets && tries > 0) forget(w);
        w->want = tries % 2 ? 0 : (uint64_t)draw(w, (int)w->history.next);
        if (w->want >= w->history.first && w->want > 0) w->want = w->history.first; /* knows nothing before it */
        if (w->want > 0 && w->want == w->history.first) w->want--;                  /* so it is made up */
        if (!forgets) w->want = 0;
        /* Of what is made up it may know anything. */
        memset(w->knows, w->history.first > w->want, sizeof w->knows);
        w->ended = false;
        w->later = tries == 0 || draw(w, 2);
        ek_replays_ask(&w->replays, peer, w->want, 0);
        if (draw(w, 3) == 0) ek_replays_ask(&w->replays, peer, w->want, 0); /* again: the first is forgotten */
        for (int k = 0; !w->ended; k++) {
            assert_true(k < 10000);
            if (draw(w, 4) == 0) publish(w);
            if (forgets && w->later && draw(w, 8) == 0) forget(w); /* in the middle of a replay out of it */
            ek_replays_go_on(&w->replays, 0.001 * k, 1.5);
        }
        assert_int_equal(w->replays.n, 0);
        assert_int_equal(w->want, w->history.next);
        knows_all(w);
    }
    ek_history_clear(&w->history);
    ek_mirror_fini(&w->mirror);
    free(w);
}

static void replays_leave_no_gap(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        walk(seed, 1 + (int)(seed * 37 % 300), false);
        walk(seed, 30 + (int)(seed * 37 % 300), true);
    }
    walk(21, EK_HISTORY_BATCHES + 500, true);
}

/* One who reads nothing is given up; one who asks for what is not there yet gets the end. */
static ek_replay_sent never(void *arg, ek_events_frame peer, uint64_t number, ek_events_frame payload)
{
    (void)peer, (void)number;
    ++*(int *)arg;
    return payload.data ? EK_REPLAY_LATER : EK_REPLAY_SENT;
}

static void nobody_is_waited_for(void **state)
{
    (void)state;
    world *w = ek_alloc(sizeof *w);
    int calls = 0;
    w->seed = 5;
    w->replays = (ek_replays){
        .history = &w->history, .mirror = &w->mirror, .arrays = w->arrays, .send = never, .arg = &calls};
    for (int i = 0; i < 10; i++) publish(w);
    for (int i = 0; i < EK_REPLAYS; i++) {
        char name[2] = {(char)('a' + i), 0};
        ek_replays_ask(&w->replays, (ek_events_frame){name, 1}, i == 0 ? 10 : i == 1 ? 1000 : (uint64_t)i, 0);
    }
    assert_false(ek_replays_go_on(&w->replays, 5, 1.5));
    assert_int_equal(w->replays.n, EK_REPLAYS - 2); /* the end was taken */
    assert_int_equal(w->replays.done, 2);
    ek_replays_go_on(&w->replays, 11, 1.5);
    assert_int_equal(w->replays.n, 0);
    assert_int_equal(w->replays.lost, EK_REPLAYS - 2);
    ek_history_clear(&w->history);
    ek_mirror_fini(&w->mirror);
    free(w);
}

static void requests(void **state)
{
    (void)state;
    uint64_t from;
    char peer[300] = "p", number[9] = {0, 0, 0, 0, 0, 0, 1, 2};
    ek_events_frame f[4] = {{peer, 5}, {"", 0}, {number, 8}, {"", 0}};
    assert_true(ek_replay_parse(f, 3, &from));
    assert_int_equal(from, 258);
    assert_false(ek_replay_parse(f, 2, &from));
    assert_false(ek_replay_parse(f, 4, &from));
    for (size_t n = 0; n < 10; n++) {
        f[2].n = n;
        assert_int_equal(ek_replay_parse(f, 3, &from), n == 8);
    }
    f[2].n = 8, f[1].n = 1;
    assert_false(ek_replay_parse(f, 3, &from));
    f[1].n = 0, f[0].n = 300;
    assert_false(ek_replay_parse(f, 3, &from));
    f[0].n = 0;
    assert_false(ek_replay_parse(f, 3, &from));
}

/* What a replica with 10,000 pages, 640,000 tokens, sends to one that asks. */
static void a_snapshot_is_small(void **state)
{
    (void)state;
    enum { PAGES = 10000 };
    ek_mirror m = {0};
    for (int i = 0; i < PAGES; i++) {
        ek_held_change c = page((uint64_t)i + 1, i % 100 ? (uint64_t)i : 0);
        for (int k = 0; k < EK_PAGE_TOKENS; k++) c.page.token[k] = (int32_t)(ek_mix64((uint64_t)(i * 64 + k)) % 262144);
        ek_mirror_apply(&m, &c);
    }
    ek_buf *batch;
    double begin = ek_thread_time();
    size_t bytes = 0;
    int n = ek_events_snapshot(&batch, &m, false, 1.5, 1 << 20);
    double spent = ek_thread_time() - begin;
    for (int i = 0; i < n; i++) {
        bytes += batch[i].len;
        ek_buf_fini(&batch[i]);
    }
    free(batch);
    printf("measured: a page takes %.0f bytes and %.2f us to write\n", (double)bytes / PAGES, 1e6 * spent / PAGES);
    assert_true(bytes < 400 * PAGES);
    assert_int_equal(n, (PAGES + 63) / 64);
    n = ek_events_snapshot(&batch, &m, false, 1.5, 3); /* fewer numbers are missing */
    assert_int_equal(n, 3);
    for (int i = 0; i < n; i++) ek_buf_fini(&batch[i]);
    free(batch);
    ek_mirror_fini(&m);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
#ifdef EK_HAVE_EVENTS
        cmocka_unit_test(bytes_of_maps),
        cmocka_unit_test(bytes_of_arrays),
        cmocka_unit_test(replays_leave_no_gap),
        cmocka_unit_test(nobody_is_waited_for),
        cmocka_unit_test(requests),
        cmocka_unit_test(a_snapshot_is_small),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
