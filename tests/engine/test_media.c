/* Prompts with pictures and sounds: what is encoded, when, and who shares it. The encoder is one whose rows are a hash
 * of the content, so that a row of another picture, or a placeholder's, gives another reply. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/beside.h"
#include "asks.h"
#include "base/alloc.h"
#include "base/hash/rng.h"
#include "base/log.h"

enum { IMAGE = 90, FRAME, SOUND, BEGIN, END, N_MEDIA = 24, COST = 100, BAD_TOKENS = 31, LONGEST = 60 };

/* --- the encoder */

typedef struct tower {
    const ek_media *m; /* NULL: nothing is encoded */
    float *rows;
    double left;
    int begun, slices, done, dropped;
    double longest; /* multiply-adds of a slice */
} tower;

static tower now;

static void fill(float *rows, const ek_media *m)
{
    uint64_t h;
    memcpy(&h, m->digest, sizeof h);
    for (int i = 0; i < m->tokens * FAKE_HIDDEN; i++) rows[i] = (float)(ek_mix64(h + (uint64_t)i) >> 40);
}

static ek_err begin(void *arg, const ek_media *m, float *rows)
{
    tower *t = arg;
    assert_null(t->m);
    t->m = m, t->rows = rows, t->left = COST * m->tokens;
    for (int i = 0; i < m->tokens * FAKE_HIDDEN; i++) rows[i] = NAN;
    t->begun++;
    return EK_OK;
}

static ek_err advance(void *arg, double macs, bool *done)
{
    tower *t = arg;
    assert_non_null(t->m);
    t->slices++;
    t->left -= macs;
    if (macs > t->longest) t->longest = macs;
    *done = t->left <= 0;
    if (!*done) return EK_OK;
    const ek_media *m = t->m;
    t->m = NULL;
    if (m->tokens == BAD_TOKENS) {
        *done = false;
        return ek_fail(EK_ENOMEM, "a picture of %d tokens cannot be encoded", BAD_TOKENS);
    }
    fill(t->rows, m);
    t->done++;
    return EK_OK;
}

static void drop(void *arg)
{
    tower *t = arg;
    assert_non_null(t->m);
    t->m = NULL;
    t->dropped++;
}

static int loads;
static bool no_load;

static ek_err load(void *arg, uint8_t digest[32])
{
    (void)arg;
    loads++;
    memset(digest, 7, 32);
    return no_load ? ek_fail(EK_EFORMAT, "the towers are damaged") : EK_OK;
}

static double feature_bytes;
static bool everywhere; /* as 12B: rows of images see each other in all layers, past the window too */
static int max_tokens;

static void with_towers(ek_executor *x, ek_engine_opts *o)
{
    now = (tower){0};
    x->encoder = (ek_encoder){.takes = {true, true, true},
                              .max_tokens = max_tokens,
                              .everywhere = everywhere,
                              .row_macs = 10,
                              .arg = &now,
                              .load = load,
                              .begin = begin,
                              .advance = advance,
                              .drop = drop};
    o->feature_bytes = feature_bytes;
}

/* --- requests */

static ek_media *media[N_MEDIA];
static float row[N_MEDIA][LONGEST * FAKE_HIDDEN];

/* Some have contents that others have too, as another object. */
static void make_media(void)
{
    for (int i = 0; i < N_MEDIA; i++) {
        ek_media *m = ek_alloc(sizeof *m);
        uint64_t r = ek_mix64((uint64_t)(i % 3 == 2 ? i - 1 : i) + 5);
        m->kind = (ek_part_kind)(r % EK_PART_KINDS);
        m->tokens = 1 + (int)((r >> 8) % 30);
        if (i == N_MEDIA - 1) m->tokens = LONGEST, m->kind = EK_PART_IMAGE;
        if (i == N_MEDIA - 2) m->tokens = BAD_TOKENS, m->kind = EK_PART_IMAGE;
        for (int k = 0; k < 4; k++) memcpy(m->digest + 8 * k, &r, 8), r = ek_mix64(r);
        atomic_init(&m->refs, 1);
        media[i] = m;
        fill(row[i], m);
    }
}

static void free_media(void)
{
    for (int i = 0; i < N_MEDIA; i++) {
        assert_int_equal(atomic_load(&media[i]->refs), 1); /* nobody else holds any */
        ek_media_release(media[i]);
    }
}

static void init(fake *f, int window, bool mutual)
{
    fake_init(f, window, true, true);
    f->config.media = (ek_media_ids){
        .soft = {IMAGE, FRAME, SOUND}, .begin = {BEGIN, BEGIN, BEGIN}, .end = {END, END, END}};
    f->config.mutual = mutual;
}

/* Appends media[which] to the prompt, between its marks. */
static void add(ask *a, int which)
{
    const ek_media *m = media[which];
    ek_prompt_span *s = &a->span[a->n_spans++];
    a->prompt[a->n_prompt++] = BEGIN;
    a->part[a->n_parts++] = (ek_part){media[which], a->n_prompt};
    *s = (ek_prompt_span){.first = a->n_prompt, .end = a->n_prompt + m->tokens, .embedding = row[which]};
    s->mutual[EK_SLIDING] = a->f->config.mutual && m->kind != EK_PART_SOUND;
    s->mutual[EK_FULL] = s->uncut = s->mutual[EK_SLIDING] && everywhere;
    for (int i = 0; i < m->tokens; i++) a->prompt[a->n_prompt++] = a->f->config.media.soft[m->kind];
    a->prompt[a->n_prompt++] = END;
}

static void add_text(ask *a, uint64_t seed, int n)
{
    for (int i = 0; i < n; i++) a->prompt[a->n_prompt++] = (int32_t)(ek_mix64(seed + (uint64_t)i) % IMAGE);
}

/* The same beginning for many seeds; then other pictures at the same places. */
static void grow_media(ask *a, const fake *f, uint64_t seed)
{
    grow(a, f, seed, 40);
    uint64_t r = ek_mix64(seed * 77);
    a->n_prompt = 0;
    add_text(a, seed % 2, 1 + (int)(seed % 2 * 9));
    for (uint64_t k = 0; k < r % (MAX_SPANS + 1); k++) {
        add(a, (int)(ek_mix64(r + k) % (N_MEDIA - 2)));
        add_text(a, seed % 3, (int)(ek_mix64(r + 10 + k) % 70));
    }
    a->prompt_logits_from = r >> 20 & 1 ? a->n_prompt : (int)((r >> 21) % (uint64_t)(a->n_prompt + 1));
    a->own_stop = 0;
    set_want(a, 4096);
}

static void company(int chunk, int pages, double bytes, bool mutual, uint64_t seed)
{
    fake f;
    init(&f, 24, mutual);
    feature_bytes = bytes, max_tokens = LONGEST;
    f.draft = seed % 3 ? EK_DRAFT_OFF : EK_DRAFT_NGRAM;
    ek_engine *e = open_engine(&f, pages, pages, 5, chunk);
    uint64_t encoded = 0, reused = 0;
    for (int i = 0; i < MAX_REQUESTS; i++) {
        grow_media(&asks[i], &f, seed * 100 + (uint64_t)i % 13);
        if (i % 7 == 3) asks[i].cancel_at = 2;
        submit(e, &asks[i]);
        if (i % 5 == 1) ek_engine_cancel(e, asks[i].id), asks[i].cancel = true;
        for (uint64_t k = ek_mix64(seed + (uint64_t)i) % 9; k > 0; k--) ek_engine_step(e);
        check_cache(e, &f);
        if (i % 11 == 6) ek_engine_cancel(e, asks[i].id), asks[i].cancel = true;
    }
    step_until_idle(e);
    for (int i = 0; i < MAX_REQUESTS; i++) {
        check(&asks[i]);
        reused += (uint64_t)asks[i].n_features;
    }
    ek_engine_stats s;
    ek_engine_stats_read(e, &s);
    encoded = s.encoded[0] + s.encoded[1];
    assert_int_equal(encoded, now.done);
    assert_true(s.feature_bytes <= bytes);
    assert_true(now.longest <= chunk * 10);
    if (bytes > 1e6) {
        assert_in_range(now.begun - now.dropped, 0, N_MEDIA * 2 / 3); /* each content once */
        assert_true(reused > 0);
    }
    ek_engine_close(e);
    assert_null(now.m);
}

static void replies_are_those_of_the_content(void **state)
{
    (void)state;
    static const int chunks[] = {7, 30, 61, 512};
    change_opts = with_towers;
    make_media();
    for (uint64_t seed = 1; seed <= 12; seed++)
        for (int mutual = 0; mutual < 3; mutual++) {
            everywhere = mutual == 2;
            company(chunks[seed % 4], seed % 2 ? 20 : 60,
                    seed % 3 == 0   ? 0
                    : seed % 3 == 1 ? 700
                                    : 1e9,
                    mutual > 0, seed);
        }
    everywhere = false;
    free_media();
}

/* The pages of one picture are never those of another, and of the same one they are. */
static void pages_know_the_content(void **state)
{
    (void)state;
    change_opts = with_towers;
    make_media();
    feature_bytes = 1e9, max_tokens = LONGEST;
    int other = -1;
    for (int i = 1; i < N_MEDIA - 2 && other < 0; i++)
        if (media[i]->kind == media[0]->kind && memcmp(media[i]->digest, media[0]->digest, 32) != 0) other = i;
    assert_true(other > 0);
    ek_media small = *media[other];
    media[other]->tokens = media[0]->tokens; /* the only difference is the content */
    fill(row[other], media[other]);
    for (int mutual = 0; mutual < 2; mutual++) {
        fake f;
        init(&f, 24, mutual);
        ek_engine *e = open_engine(&f, 60, 60, 2, 512);
        for (int i = 0; i < 3; i++) {
            ask *a = &asks[i];
            grow(a, &f, 5, 40);
            a->n_prompt = 0;
            add_text(a, 1, 5);
            add(a, i == 1 ? other : 0);
            add_text(a, 2, 70);
            a->prompt_logits_from = a->n_prompt;
            set_want(a, 4096);
            submit(e, a);
            step_until_idle(e);
            check(a);
        }
        assert_in_range(asks[1].n_cached, 0, 6); /* up to the mark in front of it */
        assert_true(asks[2].n_cached > 6 + media[0]->tokens);
        assert_int_equal(now.done, 2);
        assert_int_equal(asks[2].n_features, 0); /* its rows are in the pages: nothing was looked for */
        assert_int_equal(asks[2].n_kept, media[0]->tokens);
        assert_int_equal(asks[0].n_kept + asks[1].n_kept, 0);
        int tokens = media[0]->kind == EK_PART_SOUND ? asks[2].n_sound : asks[2].n_image;
        assert_int_equal(tokens, media[0]->tokens);
        assert_int_equal(asks[2].n_image + asks[2].n_sound, media[0]->tokens);
        /* Without pages the features are there still. */
        asks[3] = asks[0];
        asks[3].salt = 9, asks[3].n_got = 0, asks[3].n_prompt_logits = 0, asks[3].finish = EK_FINISH_NONE;
        asks[3].accepted = -1;
        submit(e, &asks[3]);
        step_until_idle(e);
        check(&asks[3]);
        assert_int_equal(asks[3].n_cached, 0);
        assert_int_equal(asks[3].n_features, media[0]->tokens);
        assert_int_equal(asks[3].n_kept, 0); /* of another tenant: what that one has shown is not said */
        /* Behind another beginning too. */
        grow(&asks[4], &f, 5, 40);
        asks[4].n_prompt = 0;
        add_text(&asks[4], 8, 5);
        add(&asks[4], 0);
        add_text(&asks[4], 2, 20);
        asks[4].prompt_logits_from = asks[4].n_prompt;
        set_want(&asks[4], 4096);
        submit(e, &asks[4]);
        step_until_idle(e);
        check(&asks[4]);
        assert_int_equal(asks[4].n_features, media[0]->tokens);
        assert_int_equal(asks[4].n_kept, media[0]->tokens);
        assert_int_equal(now.done, 2);
        ek_engine_close(e);
    }
    media[other]->tokens = small.tokens;
    free_media();
}

/* A stream gets its next token after at most one step and one slice, whatever is encoded; a slice is at most a chunk's
 * work. */
static void streams_go_on(void **state)
{
    (void)state;
    change_opts = with_towers;
    make_media();
    feature_bytes = 0, max_tokens = LONGEST;
    fake f;
    init(&f, 24, true);
    ek_engine *e = open_engine(&f, 200, 200, 6, 16);
    ask *stream = &asks[0];
    grow(stream, &f, 3, 5);
    stream->max_tokens = MAX_REPLY, stream->ignore_eos = true;
    set_want(stream, 4096);
    submit(e, stream);
    int late = 0, at = 0, slices = 0, gap = 0, got = 0, while_encoding = 0;
    while (ek_engine_step(e)) {
        if (stream->n_got > got) {
            if (got > 0 && f.steps - at + now.slices - slices > gap) gap = f.steps - at + now.slices - slices;
            while_encoding += now.slices > slices;
            at = f.steps, slices = now.slices, got = stream->n_got;
        }
        if (got > 3 && late < 4 && f.steps % 5 == 0) {
            ask *a = &asks[++late];
            grow(a, &f, 90 + (uint64_t)late, 40);
            a->n_prompt = 0;
            add_text(a, (uint64_t)late, 20);
            add(a, N_MEDIA - 1);
            add(a, late);
            add_text(a, 9, 30);
            a->max_tokens = 3;
            a->prompt_logits_from = a->n_prompt;
            set_want(a, 4096);
            submit(e, a);
        }
    }
    for (int i = 0; i <= late; i++) check(&asks[i]);
    assert_int_equal(late, 4);
    assert_true(while_encoding > 20);
    assert_int_equal(gap, 2);
    assert_true(now.longest <= 16 * 10);
    printf("longest gap of a stream while %d pictures of %d tokens are encoded: %d steps, of which one is a slice\n",
           late, LONGEST, gap);
    ek_engine_close(e);
    free_media();
}

/* Towers are loaded with the first picture, once, and text does not wait for them. */
static void towers_are_loaded_when_needed(void **state)
{
    (void)state;
    change_opts = with_towers;
    make_media();
    feature_bytes = 1e9, max_tokens = LONGEST;
    fake f;
    init(&f, 24, false);
    loads = 0;
    ek_engine *e = open_engine(&f, 60, 60, 4, 64);
    for (int i = 0; i < 4; i++) {
        grow(&asks[i], &f, 40 + (uint64_t)i, 30);
        asks[i].n_prompt = 0;
        add_text(&asks[i], (uint64_t)i, 9);
        if (i > 0) add(&asks[i], i);
        add_text(&asks[i], 8, 9);
        asks[i].prompt_logits_from = asks[i].n_prompt;
        set_want(&asks[i], 4096);
        no_load = i == 1;
        submit(e, &asks[i]);
        step_until_idle(e);
        assert_int_equal(loads, i);
        if (i == 3) break;
        if (i == 1) assert_string_equal(asks[i].text, "the towers are damaged");
        else check(&asks[i]);
        if (i == 2) loads++; /* and is not asked again */
    }
    check(&asks[3]);
    ek_engine_close(e);
    free_media();
}

/* Only the request whose picture cannot be encoded ends. */
static void failures_are_the_request_s_own(void **state)
{
    (void)state;
    change_opts = with_towers;
    make_media();
    feature_bytes = 1e9, max_tokens = LONGEST;
    fake f;
    init(&f, 24, true);
    ek_engine *e = open_engine(&f, 60, 60, 4, 64);
    for (int i = 0; i < 3; i++) {
        grow(&asks[i], &f, 40 + (uint64_t)i, 30);
        asks[i].n_prompt = 0;
        add_text(&asks[i], (uint64_t)i, 9);
        add(&asks[i], i == 1 ? N_MEDIA - 2 : i);
        add_text(&asks[i], 8, 9);
        asks[i].prompt_logits_from = asks[i].n_prompt;
        set_want(&asks[i], 4096);
        submit(e, &asks[i]);
    }
    step_until_idle(e);
    check(&asks[0]);
    check(&asks[2]);
    assert_int_equal(asks[1].finish, EK_FINISH_ERROR);
    assert_string_equal(asks[1].text, "a picture of 31 tokens cannot be encoded");
    ek_engine_close(e);
    free_media();
}

static void what_is_refused(void **state)
{
    (void)state;
    change_opts = with_towers;
    make_media();
    max_tokens = LONGEST;
    fake f;
    init(&f, 24, true);
    ek_engine *e = open_engine(&f, 60, 60, 4, 20);
    ask *a = &asks[0];
    grow(a, &f, 5, 40);
    a->n_prompt = 0;
    add_text(a, 1, 5);
    add(a, N_MEDIA - 1);
    a->prompt_logits_from = a->n_prompt;
    ek_request_opts o = opts_of(a);
    ek_request_id id;
    o.n_parts = 0;
    assert_int_equal(ek_engine_submit(e, &o, &id), EK_EINVAL);
    assert_string_equal(ek_err_text(), "position 6 is a place for an image, and none is attached for it");
    o = opts_of(a), o.span = a->span, o.n_spans = 1;
    assert_int_equal(ek_engine_submit(e, &o, &id), EK_EINVAL);
    o = opts_of(a), a->part[0].first++;
    assert_int_equal(ek_engine_submit(e, &o, &id), EK_EINVAL);
    a->part[0].first--, o.prompt_logits_from = 0;
    e->rules.max_prompt_logits = 20;
    assert_int_equal(ek_engine_submit(e, &o, &id), EK_EINVAL); /* its rows are one step's */
    e->rules.max_prompt_logits = LONGEST;
    e->on.encoder.takes[EK_PART_IMAGE] = false;
    assert_int_equal(ek_engine_submit(e, &o, &id), EK_EUNSUPPORTED);
    assert_string_equal(ek_err_text(), "this model takes no images");
    e->on.encoder.takes[EK_PART_IMAGE] = true;
    /* An image that is longer than a chunk is computed whole all the same. */
    a->prompt_logits_from = a->n_prompt;
    set_want(a, 4096);
    submit(e, a);
    step_until_idle(e);
    check(a);
    assert_true(f.max_rows >= LONGEST);
    ek_engine_close(e);
    /* Without towers the ids are tokens as others are. */
    change_opts = NULL;
    init(&f, 24, true);
    e = open_engine(&f, 60, 60, 4, 20);
    a->n_parts = a->n_spans = 0;
    a->n_got = 0, a->finish = EK_FINISH_NONE, a->accepted = -1;
    set_want(a, 4096);
    submit(e, a);
    step_until_idle(e);
    check(a);
    a->n_parts = 1;
    o = opts_of(a);
    assert_int_equal(ek_engine_submit(e, &o, &id), EK_EUNSUPPORTED);
    ek_engine_close(e);
    free_media();
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(replies_are_those_of_the_content),
                                       cmocka_unit_test(pages_know_the_content),
                                       cmocka_unit_test(streams_go_on),
                                       cmocka_unit_test(towers_are_loaded_when_needed),
                                       cmocka_unit_test(failures_are_the_request_s_own),
                                       cmocka_unit_test(what_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
