/* Questions for drafts and their answers, from any bytes: what is read has tokens of the vocabulary alone, and is read
 * again the same when it is written; the room for tokens is not left; and a session holds what it was given. */
#include <stdlib.h>
#include <string.h>

#include "serve/server_state.h"
#include "text/draft_message.h"

enum { ROOM = 40, VOCABULARY = 1000, GUARD = -7 };

static void check_ids(const int32_t *id, int n)
{
    for (int i = 0; i < n; i++)
        if (id[i] < 0 || id[i] >= VOCABULARY) __builtin_trap();
}

static void check_answer(const char *text, size_t n)
{
    int32_t out[EK_DRAFT_MESSAGE_MAX], again[EK_DRAFT_MESSAGE_MAX];
    ek_buf b = {0};
    const int got = ek_draft_answer_read(out, text, n, VOCABULARY);
    if (got < 0) return;
    if (got > EK_DRAFT_MESSAGE_MAX || n > EK_DRAFT_ANSWER_BYTES) __builtin_trap();
    check_ids(out, got);
    ek_draft_answer_write(&b, out, got);
    if (ek_draft_answer_read(again, b.data, b.len, VOCABULARY) != got) __builtin_trap();
    if (memcmp(out, again, (size_t)got * sizeof *out) != 0) __builtin_trap();
    ek_buf_fini(&b);
}

static void check_session(const ek_draft_question *q)
{
    static ek_draft_sessions *sessions;
    if (!sessions) sessions = ek_draft_sessions_open(2 * ROOM);
    int32_t *all = NULL;
    int n = 0;
    if (q->from > 2 * ROOM - q->n) return;
    const bool put = ek_draft_sessions_put(sessions, 1, q->session, q->from, q->tokens, q->n, &all, &n);
    if (!put && q->from == 0) __builtin_trap();
    if (put && (n != q->from + q->n || memcmp(all + q->from, q->tokens, (size_t)q->n * sizeof *all) != 0))
        __builtin_trap();
    free(all);
}

static void check_question(const char *text, size_t n)
{
    int32_t room[ROOM + 1], second[ROOM];
    ek_draft_question q = {.tokens = room}, again = {.tokens = second};
    ek_buf b = {0};
    room[ROOM] = GUARD;
    const ek_err err = ek_draft_question_read(&q, text, n, ROOM, VOCABULARY);
    if (room[ROOM] != GUARD) __builtin_trap();
    if (err) return;
    if (q.n < 1 || q.n > ROOM || q.max < 1 || q.max > EK_DRAFT_MESSAGE_MAX || q.from < 0) __builtin_trap();
    check_ids(q.tokens, q.n);
    ek_draft_question_write(&b, &q);
    if (ek_draft_question_read(&again, b.data, b.len, ROOM, VOCABULARY)) __builtin_trap();
    if (again.n != q.n || again.from != q.from || again.max != q.max || strcmp(again.session, q.session) != 0 ||
        strcmp(again.salt, q.salt) != 0 || memcmp(room, second, (size_t)q.n * sizeof *room) != 0)
        __builtin_trap();
    check_session(&q);
    ek_buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    check_answer((const char *)data, n);
    check_question((const char *)data, n);
    return 0;
}
