/* Replies in the background: what is kept of them, and the bound of their events. The whole: tests/e2e/background.py.
 */
#define _GNU_SOURCE /* memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "responses_case.h"
#include "serve/background.h"
#include "serve/openai/responses.h"
#include "serve/server_state.h"

#define BODY "{\"input\":[{\"role\":\"user\",\"content\":\"1\",\"id\":\"msg_1\"}],\"background\":true}"

/* The stored text of a response says this, and not that. */
static void stored_says(ek_response_store *s, const char *id, const char *this, const char *not_that)
{
    ek_span text;
    ek_response_held *held;
    bool background = false;
    assert_int_equal(ek_response_store_hold(s, 0, id, false, &text, &held), EK_OK);
    if (!memmem(text.p, text.n, this, strlen(this)) || memmem(text.p, text.n, not_that, strlen(not_that)))
        fail_msg("%s: %.*s", this, (int)text.n, text.p);
    ek_response_store_release(held);
    assert_true(ek_response_store_knows(s, 0, id, &background) && background);
    assert_false(ek_response_store_knows(s, 1, id, &background));
    assert_int_equal(ek_response_store_hold(s, 0, id, true, &text, &held), EK_OK);
    assert_non_null(memmem(text.p, text.n, "msg_1", 5));
    ek_response_store_release(held);
}

static void ends_are_kept(void **state)
{
    (void)state;
    ek_response_store *s = ek_response_store_open(8, 1 << 20);
    scene t;
    ek_buf out = {0};
    open_reply(&t, s, "resp_done", BODY, false);
    ek_responses_queued(&out, &t.r, false);
    assert_non_null(strstr(out.data, "\"status\":\"queued\""));
    assert_non_null(strstr(out.data, "\"background\":true"));
    assert_non_null(strstr(out.data, "\"output\":[],\"usage\":null"));
    ek_buf_clear(&out);
    say(&t, EK_REPLY_CONTENT, "2", 0);
    end_scene(&t, EK_END_STOP);
    close_scene(&t);
    stored_says(s, "resp_done", "\"status\":\"completed\"", "\"output\":[]");

    open_reply(&t, s, "resp_stopped", BODY, false);
    say(&t, EK_REPLY_CONTENT, "2", 0);
    ek_responses_cancelled(&out, &t.r);
    stored_says(s, "resp_stopped", "\"status\":\"cancelled\"", "output_text\",\"text\":\"2");
    end_scene(&t, EK_END_STOP); /* what comes after it is not kept */
    close_scene(&t);
    stored_says(s, "resp_stopped", "\"status\":\"cancelled\"", "completed");
    ek_buf_clear(&out);

    open_reply(&t, s, "resp_failed", BODY, true);
    ek_responses_queued(&out, &t.r, true);
    ek_dialect_responses.failed(&out, &t.r, 0, "no time is left");
    assert_non_null(strstr(out.data, "event: response.failed\ndata: {\"type\":\"response.failed\""));
    close_scene(&t);
    stored_says(s, "resp_failed", "\"error\":{\"code\":\"server_error\",\"message\":\"no time is left\"}", "completed");
    ek_buf_fini(&out);
    ek_response_store_close(s);
}

static ek_background *open_log(ek_server *s, double ended)
{
    ek_background *b = ek_alloc(sizeof *b);
    *b = (ek_background){.server = s, .streams = true, .ended = ended, .next = s->backgrounds, .link = &s->backgrounds};
    if (b->next) b->next->link = &b->next;
    s->backgrounds = b;
    s->n_backgrounds++;
    return b;
}

static void add(ek_background *b, size_t n)
{
    char *event = ek_alloc(n + 1);
    memset(event, 'x', n);
    memcpy(event + n - 2, "\n\n", 2);
    ek_background_log_add(b, event, n);
    free(event);
}

static void events_have_their_beginnings(void **state)
{
    (void)state;
    ek_server *s = ek_alloc(sizeof *s);
    ek_background *b = open_log(s, 0);
    ek_background_log_add(b, "a\nb\n\nc\nd\n\n", 10);
    ek_background_log_add(b, "e\n\n", 3);
    const size_t starts[] = {0, 5, 10};
    assert_int_equal(b->n_starts, 3);
    assert_memory_equal(b->starts, starts, sizeof starts);
    assert_int_equal(b->log.len, 13);
    ek_background_free(b);
    assert_int_equal(s->background_bytes, 0);
    assert_int_equal(s->n_backgrounds, 0);
    free(s);
}

/* Those that have ended make room, the oldest first; then the longest one that runs. */
static void events_make_room(void **state)
{
    (void)state;
    enum { PART = 15 << 20, HALF = 7 << 20 }; /* in memory 16 and 8 MiB */
    ek_server *s = ek_alloc(sizeof *s);
    ek_background *newer = open_log(s, 0), *older = open_log(s, 0), *small = open_log(s, 0), *large = open_log(s, 0);
    add(newer, PART), add(older, PART), add(small, PART);
    newer->ended = 20, older->ended = 10;
    add(large, HALF);
    assert_false(newer->lost || older->lost || small->lost || large->lost);
    add(large, HALF);
    assert_true(older->lost);
    assert_false(newer->lost || small->lost || large->lost);
    add(large, HALF);
    assert_true(newer->lost);
    assert_false(small->lost || large->lost);
    for (int i = 0; i < 4; i++) add(large, HALF);
    assert_true(large->lost);
    assert_int_equal(large->n_starts, 0);
    assert_false(small->lost);
    assert_true(s->background_bytes >= PART && s->background_bytes <= EK_BACKGROUND_BYTES);
    add(large, HALF); /* no more of it is kept */
    assert_int_equal(large->log.len, 0);
    while (s->backgrounds) ek_background_free(s->backgrounds);
    assert_int_equal(s->background_bytes, 0);
    free(s);
}

static void so_many_are_taken(void **state)
{
    (void)state;
    ek_server *s = ek_alloc(sizeof *s);
    for (int i = 0; i < EK_BACKGROUND_MAX; i++) open_log(s, 0);
    ek_background *last = s->backgrounds;
    assert_int_equal(ek_background_room(s), EK_EBUSY);
    assert_non_null(strstr(ek_err_text(), "1024 responses"));
    last->ended = 5;
    last->next->ended = 4;
    assert_int_equal(ek_background_room(s), EK_OK); /* the one that ended first is forgotten */
    assert_int_equal(s->n_backgrounds, EK_BACKGROUND_MAX - 1);
    assert_ptr_equal(s->backgrounds, last);
    assert_true(last->next->ended == 0);
    while (s->backgrounds) ek_background_free(s->backgrounds);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_kept),
        cmocka_unit_test(events_have_their_beginnings),
        cmocka_unit_test(events_make_room),
        cmocka_unit_test(so_many_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
