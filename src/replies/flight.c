#include "replies/replies.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { SLOTS = 256 };

typedef struct entry {
    int32_t token;
    uint64_t row;
} entry;

struct ek_flight {
    ek_flights *all;
    ek_flight *next; /* of its slot */
    ek_reply_key key;
    int refs;
    bool leads, has_probs;
    entry *entry;
    ek_logprobs *probs; /* as many as tokens, if has_probs */
    int n, cap;
    ek_flight_follower *followers;
};

struct ek_flights {
    pthread_mutex_t lock; /* guards all members below, and the flights */
    ek_flight *slot[SLOTS];
};

ek_flights *ek_flights_open(void)
{
    ek_flights *f = ek_alloc(sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    return f;
}

void ek_flights_close(ek_flights *f)
{
    if (!f) return;
    for (int i = 0; i < SLOTS; i++) EK_ASSERT(!f->slot[i]);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* --- under the lock --- */

static ek_flight **slot_of(ek_flights *all, const ek_reply_key *k)
{
    ek_flight **at = &all->slot[k->h[0]];
    while (*at && memcmp((*at)->key.h, k->h, sizeof k->h) != 0) at = &(*at)->next;
    return at;
}

static void release(ek_flight *f)
{
    if (--f->refs > 0) return;
    ek_flight **at = slot_of(f->all, &f->key);
    *at = f->next;
    free(f->entry);
    free(f->probs);
    free(f);
}

static void wake_all(ek_flight *f)
{
    for (ek_flight_follower *who = f->followers; who; who = who->next) {
        if (who->pending) continue;
        who->pending = true;
        who->wake(who->arg);
    }
}

static void unlink_follower(ek_flight *f, const ek_flight_follower *who)
{
    ek_flight_follower **at = &f->followers;
    while (*at && *at != who) at = &(*at)->next;
    EK_ASSERT(*at);
    *at = who->next;
}

static void grow(ek_flight *f)
{
    if (f->n < f->cap) return;
    f->cap = f->cap ? 2 * f->cap : 64;
    f->entry = ek_realloc(f->entry, (size_t)f->cap * sizeof *f->entry);
    if (f->has_probs) f->probs = ek_realloc(f->probs, (size_t)f->cap * sizeof *f->probs);
}

/* --- the leader --- */

ek_flight *ek_flight_join(ek_flights *all, const ek_reply_key *k, bool probs, ek_flight_follower *who, bool *leads)
{
    pthread_mutex_lock(&all->lock);
    ek_flight **at = slot_of(all, k), *f = *at;
    *leads = !f;
    if (!f) {
        *at = f = ek_alloc(sizeof *f);
        *f = (ek_flight){.all = all, .key = *k, .refs = 1, .leads = true, .has_probs = probs};
    } else if (f->leads && (f->has_probs || !probs)) {
        f->refs++;
        who->next = f->followers;
        f->followers = who;
    } else {
        f = NULL;
    }
    pthread_mutex_unlock(&all->lock);
    return f;
}

void ek_flight_add(ek_flight *f, int32_t token, uint64_t row, const ek_logprobs *probs)
{
    pthread_mutex_lock(&f->all->lock);
    grow(f);
    f->entry[f->n] = (entry){token, row};
    if (f->has_probs) f->probs[f->n] = probs ? *probs : (ek_logprobs){0};
    f->n++;
    wake_all(f);
    pthread_mutex_unlock(&f->all->lock);
}

void ek_flight_land(ek_flight *f)
{
    ek_flights *all = f->all;
    pthread_mutex_lock(&all->lock);
    f->leads = false;
    wake_all(f);
    release(f);
    pthread_mutex_unlock(&all->lock);
}

/* --- followers --- */

int ek_flight_tokens(ek_flight *f)
{
    pthread_mutex_lock(&f->all->lock);
    const int n = f->n;
    pthread_mutex_unlock(&f->all->lock);
    return n;
}

bool ek_flight_get(ek_flight *f, int i, int32_t *token, uint64_t *row, ek_logprobs *probs)
{
    pthread_mutex_lock(&f->all->lock);
    const bool there = i < f->n;
    if (there) {
        *token = f->entry[i].token;
        *row = f->entry[i].row;
        if (probs) *probs = f->probs[i];
    }
    pthread_mutex_unlock(&f->all->lock);
    return there;
}

void ek_flight_awake(ek_flight *f, ek_flight_follower *who)
{
    pthread_mutex_lock(&f->all->lock);
    who->pending = false;
    pthread_mutex_unlock(&f->all->lock);
}

void ek_flight_leave(ek_flight *f, ek_flight_follower *who)
{
    ek_flights *all = f->all;
    pthread_mutex_lock(&all->lock);
    unlink_follower(f, who);
    release(f);
    pthread_mutex_unlock(&all->lock);
}

bool ek_flight_has_leader(ek_flight *f)
{
    pthread_mutex_lock(&f->all->lock);
    const bool is = f->leads;
    pthread_mutex_unlock(&f->all->lock);
    return is;
}

bool ek_flight_claim(ek_flight *f, ek_flight_follower *who, ek_reply_record **out)
{
    ek_reply_draft d = {0};
    pthread_mutex_lock(&f->all->lock);
    const bool mine = !f->leads;
    if (mine) {
        f->leads = true; /* from now on only this follower adds tokens */
        unlink_follower(f, who);
    }
    pthread_mutex_unlock(&f->all->lock);
    if (!mine) return false;
    for (int i = 0; i < f->n; i++)
        ek_reply_draft_add(&d, f->entry[i].token, f->entry[i].row, f->has_probs ? &f->probs[i] : NULL);
    *out = f->n > 0 ? ek_reply_record_make(&f->key, &d, NULL, 0) : NULL;
    return true;
}
