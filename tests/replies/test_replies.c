/* Stored replies: what is part of their key, records and damage, and the store in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/files.h"
#include "replies/backends.h"

enum { VOCAB = 500 };

/* --- keys --- */

static const int32_t prompt[] = {2, 105, 7, 9};

static ek_reply_key key_with(const ek_reply_ask *change, const ek_sampling *s)
{
    ek_reply_ask a = change ? *change : (ek_reply_ask){0};
    ek_reply_key k;
    if (!a.identity) a.identity = "model 1, ek3";
    if (!a.tokens) a.tokens = prompt, a.n_tokens = 4;
    a.sampling = s;
    ek_reply_content_key(&k, &a);
    return k;
}

static bool same(ek_reply_key a, ek_reply_key b)
{
    return memcmp(a.h, b.h, sizeof a.h) == 0;
}

static void what_decides_is_in_the_key(void **state)
{
    (void)state;
    const ek_sampling g = ek_sampling_greedy();
    ek_sampling s = g;
    const ek_reply_key base = key_with(NULL, &g);
    assert_true(same(base, key_with(NULL, &g)));
    assert_false(same(base, key_with(&(ek_reply_ask){.identity = "model 2, ek3"}, &g)));
    assert_false(same(base, key_with(&(ek_reply_ask){.tokens = prompt, .n_tokens = 3}, &g)));
    const ek_reply_ask forms[] = {{.masked = true},
                                  {.masked = true, .form = ""},
                                  {.masked = true, .form = "", .program = "1"},
                                  {.masked = true, .form = "", .program = "2"},
                                  {.masked = true, .form = "{\"a\":1}"},
                                  {.masked = true, .form = "{\"a\":2}"},
                                  {.masked = true, .max_thinking = 1},
                                  {.masked = true, .thinking = true}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        assert_false(same(base, key_with(&forms[i], &g)));
        for (size_t j = 0; j < i; j++) assert_false(same(key_with(&forms[i], &g), key_with(&forms[j], &g)));
    }
    /* A form that masks nothing is none. */
    assert_true(same(base, key_with(&(ek_reply_ask){.form = "{}", .thinking = true, .program = "2"}, &g)));
    s.temperature = 0.999e-5f, s.top_k = 3, s.top_p = 0.5f, s.min_p = 0.1f, s.seed = 8;
    assert_true(same(base, key_with(NULL, &s)));
    s.presence_penalty = 0.5f;
    assert_false(same(base, key_with(NULL, &s)));
    s = g, s.temperature = EK_MIN_TEMPERATURE;
    const ek_reply_key drawn = key_with(NULL, &s);
    assert_false(same(base, drawn));
    void *const fields[] = {&s.top_p, &s.min_p, &s.repetition_penalty, &s.presence_penalty, &s.frequency_penalty};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        float *f = fields[i], before = *f;
        *f = nextafterf(before, 2);
        assert_false(same(drawn, key_with(NULL, &s)));
        *f = before;
    }
    s.seed = 1;
    assert_false(same(drawn, key_with(NULL, &s)));
    s.seed = 0, s.top_k = 1;
    assert_false(same(drawn, key_with(NULL, &s)));
    assert_true(ek_reply_is_decided(&g, false) && !ek_reply_is_decided(&s, false) && ek_reply_is_decided(&s, true));
}

static void a_bias_is_a_set(void **state)
{
    (void)state;
    ek_sampling a = ek_sampling_greedy(), b = a, c = a, d = a;
    const ek_logit_bias one[] = {{3, 1}, {9, -INFINITY}, {4, 0}}, two[] = {{9, -INFINITY}, {3, 1}},
                        other[] = {{9, -100}, {3, 1}};
    a.bias = one, a.n_bias = 3;
    b.bias = two, b.n_bias = 2;
    c.bias = other, c.n_bias = 2;
    assert_true(same(key_with(NULL, &a), key_with(NULL, &b)));
    assert_false(same(key_with(NULL, &a), key_with(NULL, &c)));
    d.bias = one + 2, d.n_bias = 1;
    assert_true(same(key_with(NULL, &d), key_with(NULL, &(ek_sampling){.top_p = 1, .repetition_penalty = 1})));
}

/* Fields cannot move into each other. */
static void media_and_salts(void **state)
{
    (void)state;
    const ek_sampling g = ek_sampling_greedy();
    ek_media m[2] = {{.digest = {1}}, {.digest = {2}}};
    ek_part at3 = {&m[0], 3}, at4 = {&m[0], 4}, other = {&m[1], 3};
    const ek_reply_key k = key_with(&(ek_reply_ask){.part = &at3, .n_parts = 1}, &g);
    assert_false(same(k, key_with(NULL, &g)));
    assert_false(same(k, key_with(&(ek_reply_ask){.part = &at4, .n_parts = 1}, &g)));
    assert_false(same(k, key_with(&(ek_reply_ask){.part = &other, .n_parts = 1}, &g)));
    ek_reply_key of[6];
    ek_reply_key_for(&of[0], &k, 0, NULL, 0);
    ek_reply_key_for(&of[1], &k, 1, NULL, 0);
    ek_reply_key_for(&of[2], &k, 0, "", 0);
    ek_reply_key_for(&of[3], &k, 0, "a", 1);
    ek_reply_key_for(&of[4], &k, 0, "a\0", 2);
    ek_reply_key_for(&of[5], &k, 1, "a", 1);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++) assert_false(same(of[i], of[j]));
    char text[EK_REPLY_KEY_TEXT];
    ek_reply_key back;
    ek_reply_key_text(text, &k);
    assert_true(ek_reply_key_read(&back, text, strlen(text)) && same(k, back));
    assert_false(ek_reply_key_read(&back, text, 63));
    text[5] = 'g';
    assert_false(ek_reply_key_read(&back, text, 64));
}

/* --- records --- */

static ek_reply_key numbered(int i)
{
    ek_reply_key k = {{0}};
    memcpy(k.h, &i, sizeof i);
    k.h[31] = 1;
    return k;
}

/* n_probs: of the first tokens. */
static ek_reply_record *record_of(int key, int n, int n_probs, int first)
{
    const ek_reply_key k = numbered(key);
    ek_reply_draft d = {0};
    for (int i = 0; i < n; i++) {
        ek_logprobs p = {.self = {(first + i) % VOCAB, -0.5f - (float)i}, .n_top = EK_LOGPROBS_MAX};
        for (int t = 0; t < p.n_top; t++) p.top[t] = (ek_logprob){(i + t) % VOCAB, -(float)t};
        ek_reply_draft_add(&d, (first + i) % VOCAB, 1000u * (uint64_t)(first + i), i < n_probs ? &p : NULL);
    }
    return ek_reply_record_make(&k, &d, NULL, 0);
}

static void a_record_is_what_was_put_in(void **state)
{
    (void)state;
    for (int n_probs = 0; n_probs <= 40; n_probs += 13) {
        ek_reply_record *r = record_of(1, 40, n_probs, 3), *got;
        size_t n;
        const void *bytes = ek_reply_record_bytes(r, &n);
        const ek_reply_key k = numbered(1), other = numbered(2);
        assert_int_equal(ek_reply_record_read(&got, &other, EK_REPLY_DISK, VOCAB, bytes, n), EK_EFORMAT);
        assert_int_equal(ek_reply_record_read(&got, &k, EK_REPLY_DISK, 42, bytes, n), EK_EFORMAT);
        assert_int_equal(ek_reply_record_read(&got, &k, EK_REPLY_DISK, VOCAB, bytes, n), EK_OK);
        assert_int_equal(ek_reply_record_tokens(got), 40);
        assert_int_equal(ek_reply_record_origin(got), EK_REPLY_DISK);
        assert_int_equal(ek_reply_record_n_probs(got), n_probs);
        for (int i = 0; i < 40; i++) {
            ek_logprobs p;
            assert_int_equal(ek_reply_record_token(got, i), i + 3);
            assert_int_equal(ek_reply_record_row(got, i), 1000 * (i + 3));
            for (int t = 0; t <= EK_LOGPROBS_MAX && i < n_probs; t++) {
                ek_reply_record_probs(got, i, t, &p);
                assert_true(p.n_top == t && p.self.token == i + 3 && p.self.logprob == -0.5f - (float)i);
                if (t) assert_true(p.top[t - 1].token == i + t - 1 && p.top[t - 1].logprob == -(float)(t - 1));
            }
        }
        ek_reply_record_release(got);
        ek_reply_record_release(r);
    }
}

static void every_changed_bit_is_found(void **state)
{
    (void)state;
    ek_reply_record *r = record_of(1, 5, 2, 0), *got;
    size_t n;
    const void *bytes = ek_reply_record_bytes(r, &n);
    uint8_t *copy = malloc(n);
    for (size_t i = 0; i < 8 * n; i++) {
        memcpy(copy, bytes, n);
        copy[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(ek_reply_record_read(&got, NULL, EK_REPLY_DISK, VOCAB, copy, n), EK_EFORMAT);
    }
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(ek_reply_record_read(&got, NULL, EK_REPLY_DISK, VOCAB, bytes, cut), EK_EFORMAT);
    free(copy);
    ek_reply_record_release(r);
}

/* --- the store --- */

static ek_replies *store_of(double bytes, double age)
{
    ek_replies *r;
    const int32_t stop[] = {1, 106};
    const ek_replies_opts o = {.identity = "m",
                               .n_vocab = VOCAB,
                               .stop = stop,
                               .n_stop = 2,
                               .max_bytes = bytes,
                               .max_age = age,
                               .audit = 0.25};
    assert_int_equal(ek_replies_open(&r, &o), EK_OK);
    return r;
}

/* Tokens of what is found; 0: nothing. */
static int found(ek_replies *r, int key)
{
    const ek_reply_key k = numbered(key);
    ek_reply_record *got = ek_replies_find(r, &k, &k, 0);
    const int n = got ? ek_reply_record_tokens(got) : 0;
    ek_reply_record_release(got);
    return n;
}

static void longer_ones_stay(void **state)
{
    (void)state;
    ek_replies *r = store_of(1e6, 0);
    ek_replies_put(r, 0, record_of(1, 10, 0, 0));
    ek_replies_put(r, 0, record_of(1, 6, 0, 0));
    assert_int_equal(found(r, 1), 10);
    ek_replies_put(r, 0, record_of(1, 12, 0, 0));
    assert_int_equal(found(r, 1), 12);
    assert_int_equal(found(r, 2), 0);
    assert_true(ek_replies_is_stop(r, 106) && !ek_replies_is_stop(r, 107));
    int audits = 0;
    for (int i = 0; i < 100; i++) audits += ek_replies_wants_audit(r);
    assert_int_equal(audits, 25);
    ek_replies_close(r);
}

/* Neither of two that say different things takes the other's place: with each, the other's requests would be computed
 * again, for ever. */
static void what_two_know_stays(void **state)
{
    (void)state;
    const int pairs[][4] = {{10, 0, 4, 4}, {4, 4, 10, 0}, {10, 2, 7, 7}, {3, 1, 9, 0}, {9, 9, 4, 0}, {5, 5, 5, 0}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const int *p = pairs[i], n = p[0] > p[2] ? p[0] : p[2], probs = p[1] > p[3] ? p[1] : p[3];
        ek_replies *r = store_of(1e6, 0);
        const ek_reply_key k = numbered(1);
        ek_replies_put(r, 0, record_of(1, p[0], p[1], 0));
        ek_replies_put(r, 0, record_of(1, p[2], p[3], 0));
        ek_reply_record *both = ek_replies_find(r, &k, &k, 0), *want = record_of(1, n, probs, 0);
        size_t n_both, n_want;
        const void *a = ek_reply_record_bytes(both, &n_both), *b = ek_reply_record_bytes(want, &n_want);
        assert_int_equal(n_both, n_want);
        assert_memory_equal(a, b, n_want);
        ek_reply_record_release(both);
        ek_reply_record_release(want);
        ek_replies_close(r);
    }
}

static void the_largest_owner_loses(void **state)
{
    (void)state;
    ek_replies *r = store_of(65536, 0);
    ek_replies_stats st;
    for (int i = 0; i < 10; i++) ek_replies_put(r, 1, record_of(i, 20, 0, 0));
    for (int i = 100; i < 1100; i++) {
        ek_replies_put(r, 2, record_of(i, 20, 0, 0));
        if (i % 20 == 0) assert_int_equal(found(r, 100), 20); /* used again and again */
    }
    for (int i = 0; i < 10; i++) assert_int_equal(found(r, i), 20);
    assert_int_equal(found(r, 100), 20);
    assert_int_equal(found(r, 101), 0);
    ek_replies_stats_read(r, &st);
    assert_true(st.bytes <= 65536 && st.evicted > 500 && st.entries + st.evicted == 1010);
    ek_replies_put(r, 2, record_of(5000, 100000, 0, 0)); /* more than all */
    assert_int_equal(found(r, 5000), 0);
    assert_int_equal(found(r, 100), 20);
    ek_replies_close(r);
}

static void old_ones_go(void **state)
{
    (void)state;
    ek_replies *r = store_of(1e6, 0.05);
    ek_replies_put(r, 0, record_of(1, 10, 0, 0));
    assert_int_equal(found(r, 1), 10);
    usleep(60000);
    assert_int_equal(found(r, 1), 0);
    ek_replies_close(r);
}

/* A backend that lies about every second key. */
typedef struct liar {
    int asked, distrusted, forgotten, written;
} liar;

static ek_reply_record *lie(void *arg, const ek_reply_key *k, const ek_reply_key *content, uint64_t owner)
{
    liar *l = arg;
    int key;
    ek_reply_record *got = NULL;
    (void)content, (void)owner;
    memcpy(&key, k->h, sizeof key);
    l->asked++;
    if (l->distrusted) return NULL;
    ek_reply_record *r = record_of(key, 8, 0, key % 2 ? 50 : 0);
    size_t n;
    const void *bytes = ek_reply_record_bytes(r, &n);
    assert_int_equal(ek_reply_record_read(&got, k, EK_REPLY_SHARED, VOCAB, bytes, n), EK_OK);
    ek_reply_record_release(r);
    return got;
}

static ek_err count_written(void *arg, ek_reply_record *const *r, const uint64_t *owner, int n)
{
    (void)r, (void)owner;
    ((liar *)arg)->written += n;
    return EK_OK;
}

static void forget(void *arg, const ek_reply_key *k)
{
    (void)k;
    ((liar *)arg)->forgotten++;
}

static void distrust(void *arg)
{
    ((liar *)arg)->distrusted++;
}

static void close_nothing(void *arg)
{
    (void)arg;
}

static void a_lie_takes_its_family_out(void **state)
{
    (void)state;
    liar l = {0};
    ek_replies *r = store_of(1e6, 0);
    ek_replies_stats st;
    ek_replies_add(r, &(ek_reply_backend){.origin = EK_REPLY_SHARED,
                                          .arg = &l,
                                          .find = lie,
                                          .write = count_written,
                                          .forget = forget,
                                          .distrust = distrust,
                                          .close = close_nothing});
    ek_replies_put(r, 0, record_of(1000, 4, 0, 0));
    for (int i = 0; i < 10; i++) assert_int_equal(found(r, i), 8);
    assert_int_equal(l.asked, 10);
    for (int i = 0; i < 10; i++) assert_int_equal(found(r, i), 8);
    assert_int_equal(l.asked, 10);               /* from memory */
    ek_replies_put(r, 0, record_of(3, 8, 0, 0)); /* computed, and not what was found */
    assert_int_equal(l.distrusted, 1);
    for (int i = 0; i < 10; i++) assert_int_equal(found(r, i), i == 3 ? 8 : 0);
    assert_int_equal(found(r, 1000), 4);
    ek_replies_flush(r);
    assert_int_equal(l.written, 2);
    ek_replies_stats_read(r, &st);
    assert_int_equal(st.wrong, 1);
    ek_replies_put(r, 0, record_of(1000, 4, 0, 9)); /* one of our own */
    assert_int_equal(l.forgotten, 1);
    assert_int_equal(found(r, 3), 0);
    assert_int_equal(found(r, 1000), 4);
    ek_replies_close(r);
}

typedef struct late {
    ek_replies *replies;
    int asked, distrusted;
} late;

/* While it reads one record, another of it is found wrong. */
static ek_reply_record *lie_late(void *arg, const ek_reply_key *k, const ek_reply_key *content, uint64_t owner)
{
    late *l = arg;
    liar other = {0};
    ek_reply_record *got = l->distrusted ? NULL : lie(&other, k, content, owner);
    if (got && ++l->asked == 2) ek_replies_wrong(l->replies, got, "a test says so");
    return got;
}

static void distrust_late(void *arg)
{
    ((late *)arg)->distrusted++;
}

static void a_lie_in_hand_is_not_kept(void **state)
{
    (void)state;
    late l = {.replies = store_of(1e6, 0)};
    ek_replies_add(
        l.replies,
        &(ek_reply_backend){
            .origin = EK_REPLY_SHARED, .arg = &l, .find = lie_late, .distrust = distrust_late, .close = close_nothing});
    assert_int_equal(found(l.replies, 2), 8);
    assert_int_equal(found(l.replies, 1), 0);
    assert_int_equal(l.distrusted, 1);
    for (int i = 0; i < 3; i++) assert_int_equal(found(l.replies, i), 0);
    ek_replies_close(l.replies);
}

/* --- on disk --- */

static char *folder;

static ek_replies *on_disk(const char *identity, double bytes, double age)
{
    ek_replies *r = store_of(1e6, 0);
    ek_reply_backend disk;
    const ek_reply_disk_opts o = {
        .dir = folder, .identity = identity, .n_vocab = VOCAB, .max_bytes = bytes, .max_age = age};
    assert_int_equal(ek_reply_disk_open(&disk, &o), EK_OK);
    ek_replies_add(r, &disk);
    return r;
}

/* The file of the folder. */
static void file_of(char *path, size_t room)
{
    DIR *d = opendir(folder);
    *path = '\0';
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, "-replies.sqlite") && !strstr(e->d_name, "sqlite-"))
            snprintf(path, room, "%s/%s", folder, e->d_name);
    closedir(d);
    assert_true(*path);
}

static uint64_t damaged(ek_replies *r)
{
    ek_replies_stats st;
    ek_replies_stats_read(r, &st);
    return st.damaged;
}

static void they_outlive_the_process(void **state)
{
    (void)state;
    char path[512];
    struct stat st;
    folder = temp_dir();
    ek_replies *r = on_disk("one", 1e6, 0);
    for (int i = 0; i < 300; i++) ek_replies_put(r, 0, record_of(i, 1 + i % 9, i % 2 ? 3 : -1, 0));
    ek_replies_put(r, 0, record_of(7, 20, 0, 0));
    ek_replies_close(r);
    r = on_disk("one", 1e6, 0);
    for (int i = 0; i < 300; i++) assert_int_equal(found(r, i), i == 7 ? 20 : 1 + i % 9);
    assert_int_equal(found(r, 300), 0);
    ek_reply_backend second;
    const ek_reply_disk_opts o = {.dir = folder, .identity = "one", .n_vocab = VOCAB, .max_bytes = 1e6};
    assert_int_equal(ek_reply_disk_open(&second, &o), EK_EBUSY);
    ek_replies_close(r);
    file_of(path, sizeof path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    r = on_disk("another model", 1e6, 0);
    assert_int_equal(found(r, 7), 0);
    ek_replies_close(r);
    r = on_disk("one", 4000, 0);
    int left = 0;
    for (int i = 0; i < 300; i++) left += found(r, i) > 0;
    assert_true(left > 5 && left < 40);
    ek_replies_close(r);
    usleep(20000);
    r = on_disk("one", 1e6, 0.01);
    for (int i = 0; i < 300; i++) assert_int_equal(found(r, i), 0);
    ek_replies_close(r);
    remove_dir(folder);
}

/* Every change of the file: what was put is found, or nothing. */
static void a_damaged_file_gives_nothing_wrong(void **state)
{
    (void)state;
    static uint8_t whole[1 << 20], copy[1 << 20];
    char path[512];
    folder = temp_dir();
    ek_replies *r = on_disk("one", 1e6, 0);
    for (int i = 0; i < 40; i++) ek_replies_put(r, 0, record_of(i, 30, 0, 0));
    ek_replies_close(r);
    file_of(path, sizeof path);
    FILE *f = fopen(path, "rb");
    const size_t n = fread(whole, 1, sizeof whole, f);
    fclose(f);
    assert_true(n > 10000 && n < sizeof whole);
    uint64_t n_damaged = 0;
    int n_found = 0;
    for (int round = 0; round < 60; round++) {
        memcpy(copy, whole, n);
        const size_t size = round % 10 == 9 ? n * (size_t)round / 60 : n;
        for (int k = 0; k < 1 + round % 5 && round % 10 < 9; k++)
            copy[((size_t)round * 7919u + (size_t)k * 104729u) % n] ^= (uint8_t)(1 << (round + k) % 8);
        f = fopen(path, "wb");
        fwrite(copy, 1, size, f);
        fclose(f);
        r = on_disk("one", 1e6, 0);
        for (int i = 0; i < 40; i++) {
            const int got = found(r, i);
            assert_true(got == 0 || got == 30);
            n_found += got > 0;
        }
        n_damaged += damaged(r);
        ek_replies_close(r);
    }
    assert_true(n_damaged > 20 && n_found > 200);
    remove_dir(folder);
}

static void a_wrong_one_empties_the_file(void **state)
{
    (void)state;
    folder = temp_dir();
    ek_replies *r = on_disk("one", 1e6, 0);
    for (int i = 0; i < 10; i++) ek_replies_put(r, 0, record_of(i, 8, 0, 50));
    ek_replies_close(r);
    r = on_disk("one", 1e6, 0);
    assert_int_equal(found(r, 3), 8);
    ek_replies_put(r, 0, record_of(3, 8, 0, 0));
    ek_replies_flush(r);
    for (int i = 0; i < 10; i++) assert_int_equal(found(r, i), i == 3 ? 8 : 0);
    ek_replies_close(r);
    r = on_disk("one", 1e6, 0);
    for (int i = 0; i < 10; i++) assert_int_equal(found(r, i), i == 3 ? 8 : 0);
    ek_replies_close(r);
    remove_dir(folder);
}

/* The file has what this process computed. */
static void a_wrong_one_of_ours_empties_it_too(void **state)
{
    (void)state;
    folder = temp_dir();
    ek_replies *r = on_disk("model 1", 1e6, 0);
    for (int i = 0; i < 5; i++) ek_replies_put(r, 0, record_of(i, 10, 0, i));
    ek_replies_flush(r);
    ek_replies_put(r, 0, record_of(2, 10, 0, 7));
    for (int i = 0; i < 5; i++) assert_int_equal(found(r, i), i == 2 ? 10 : 0);
    ek_replies_close(r);
    r = on_disk("model 1", 1e6, 0);
    for (int i = 0; i < 5; i++) assert_int_equal(found(r, i), i == 2 ? 10 : 0);
    ek_replies_close(r);
    remove_dir(folder);
}

static void *put_and_find(void *arg)
{
    ek_replies *r = arg;
    for (int i = 0; i < 3000; i++) {
        ek_replies_put(r, (uint64_t)(i % 3), record_of(i % 97, 1 + i % 30, 0, 0));
        const int n = found(r, (i * 7) % 97);
        assert_true(n >= 0 && n <= 30);
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    pthread_t t[4];
    ek_replies *r = store_of(65536, 0);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, put_and_find, r), 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    ek_replies_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_decides_is_in_the_key),
        cmocka_unit_test(a_bias_is_a_set),
        cmocka_unit_test(media_and_salts),
        cmocka_unit_test(a_record_is_what_was_put_in),
        cmocka_unit_test(every_changed_bit_is_found),
        cmocka_unit_test(longer_ones_stay),
        cmocka_unit_test(what_two_know_stays),
        cmocka_unit_test(the_largest_owner_loses),
        cmocka_unit_test(old_ones_go),
        cmocka_unit_test(a_lie_takes_its_family_out),
        cmocka_unit_test(a_lie_in_hand_is_not_kept),
        cmocka_unit_test(they_outlive_the_process),
        cmocka_unit_test(a_damaged_file_gives_nothing_wrong),
        cmocka_unit_test(a_wrong_one_empties_the_file),
        cmocka_unit_test(a_wrong_one_of_ours_empties_it_too),
        cmocka_unit_test(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
