#include "serve/store/draft_sessions.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

typedef struct session {
    char name[33]; /* "": nobody's */
    uint64_t owner, used;
    int32_t *tokens;
    int n, room;
} session;

struct ek_draft_sessions {
    pthread_mutex_t lock;
    int max_tokens;
    uint64_t clock;
    session at[EK_DRAFT_SESSIONS];
};

ek_draft_sessions *ek_draft_sessions_open(int max_tokens)
{
    ek_draft_sessions *s = ek_alloc(sizeof *s);
    s->max_tokens = max_tokens;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void ek_draft_sessions_close(ek_draft_sessions *s)
{
    if (!s) return;
    for (int i = 0; i < EK_DRAFT_SESSIONS; i++) free(s->at[i].tokens);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int count(const ek_draft_sessions *s, uint64_t owner)
{
    int n = 0;
    for (int i = 0; i < EK_DRAFT_SESSIONS; i++) n += *s->at[i].name && s->at[i].owner == owner;
    return n;
}

/* An entry for a new session: a free one, or the least recently used of the owner with the most. */
static session *make_free(ek_draft_sessions *s, uint64_t owner)
{
    session *oldest = NULL;
    int max = 0;
    for (int i = 0; i < EK_DRAFT_SESSIONS; i++) {
        session *a = &s->at[i];
        if (!*a->name) return a;
        const int n = count(s, a->owner) + (a->owner == owner);
        if (n > max || (n == max && a->used < oldest->used)) oldest = a, max = n;
    }
    return oldest;
}

/* The owner's session of that name. NULL: there is none, and `begins` is false. */
static session *find(ek_draft_sessions *s, uint64_t owner, const char *name, bool begins)
{
    for (int i = 0; i < EK_DRAFT_SESSIONS; i++) {
        session *a = &s->at[i];
        if (a->owner == owner && !strcmp(a->name, name)) return a;
    }
    if (!begins) return NULL;
    session *a = make_free(s, owner);
    a->n = 0;
    a->owner = owner;
    snprintf(a->name, sizeof a->name, "%s", name);
    return a;
}

/* Half as much again as is needed, because replies grow by a few tokens at a time. */
static void make_room(const ek_draft_sessions *s, session *a, int n)
{
    if (n <= a->room) return;
    a->room = n + n / 2 + 64 < s->max_tokens ? n + n / 2 + 64 : s->max_tokens;
    int32_t *tokens = ek_alloc((size_t)a->room * sizeof *tokens);
    if (a->n) memcpy(tokens, a->tokens, (size_t)a->n * sizeof *tokens);
    free(a->tokens);
    a->tokens = tokens;
}

bool ek_draft_sessions_put(ek_draft_sessions *s, uint64_t owner, const char *name, int from, const int32_t *tokens,
                           int n, int32_t **out, int *n_out)
{
    EK_ASSERT(from >= 0 && n >= 1 && from <= s->max_tokens - n);
    pthread_mutex_lock(&s->lock);
    session *a = find(s, owner, name, from == 0);
    const bool good = a && a->n >= from;
    if (good) {
        make_room(s, a, from + n);
        memcpy(a->tokens + from, tokens, (size_t)n * sizeof *tokens);
        a->n = *n_out = from + n;
        a->used = ++s->clock;
        *out = ek_alloc((size_t)a->n * sizeof **out);
        memcpy(*out, a->tokens, (size_t)a->n * sizeof **out);
    }
    pthread_mutex_unlock(&s->lock);
    return good;
}
