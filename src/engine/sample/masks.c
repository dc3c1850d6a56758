#include "engine/sample/masks.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

typedef struct job {
    const ek_mask *mask;
    const int32_t *draft;
    int n_draft;
    uint64_t *row;
} job;

struct ek_masks {
    job *job; /* [max]; only the engine's thread adds, while no thread makes masks */
    int max, n;
    double waited;
    pthread_t thread;
    bool has_thread;
    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    int begun, next, finished; /* available jobs, the first unclaimed one, finished ones */
    bool quit;
};

static void make(const job *j)
{
    bool all[EK_DRAFT_MAX + 1];
    const int n = j->mask->look(j->mask->arg, j->draft, j->n_draft, j->row, all);
    EK_ASSERT(n == j->n_draft);
}

/* Makes unclaimed masks. The caller holds the lock. */
static void take_all(ek_masks *m)
{
    while (m->next < m->begun) {
        const job *j = &m->job[m->next++];
        pthread_mutex_unlock(&m->lock);
        make(j);
        pthread_mutex_lock(&m->lock);
        if (++m->finished == m->begun) pthread_cond_signal(&m->done);
    }
}

static void *work(void *arg)
{
    ek_masks *m = arg;
    pthread_mutex_lock(&m->lock);
    while (!m->quit) {
        take_all(m);
        if (!m->quit) pthread_cond_wait(&m->work, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

ek_masks *ek_masks_open(int max, bool beside)
{
    ek_masks *m = ek_alloc(sizeof *m);
    *m = (ek_masks){.job = ek_alloc(sizeof *m->job * (size_t)max), .max = max, .waited = -1};
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->work, NULL);
    pthread_cond_init(&m->done, NULL);
    m->has_thread = beside && ek_thread_start(&m->thread, work, m) == 0;
    return m;
}

void ek_masks_close(ek_masks *m)
{
    if (!m) return;
    pthread_mutex_lock(&m->lock);
    m->quit = true;
    pthread_cond_signal(&m->work);
    pthread_mutex_unlock(&m->lock);
    if (m->has_thread) pthread_join(m->thread, NULL);
    pthread_cond_destroy(&m->done);
    pthread_cond_destroy(&m->work);
    pthread_mutex_destroy(&m->lock);
    free(m->job);
    free(m);
}

void ek_masks_add(ek_masks *m, const ek_mask *mask, const int32_t *draft, int n_draft, uint64_t *row)
{
    EK_ASSERT(m->n < m->max);
    m->job[m->n++] = (job){mask, draft, n_draft, row};
}

void ek_masks_begin(ek_masks *m)
{
    if (m->n == 0) return;
    pthread_mutex_lock(&m->lock);
    m->begun = m->n;
    pthread_cond_signal(&m->work);
    pthread_mutex_unlock(&m->lock);
}

void ek_masks_wait(ek_masks *m)
{
    if (!m || m->n == 0) return;
    double since = ek_now(); /* only for the statistics */
    pthread_mutex_lock(&m->lock);
    take_all(m);
    while (m->finished < m->begun) pthread_cond_wait(&m->done, &m->lock);
    m->begun = m->next = m->finished = 0;
    pthread_mutex_unlock(&m->lock);
    m->n = 0;
    m->waited = (m->waited > 0 ? m->waited : 0) + (ek_now() - since);
}

double ek_masks_waited(ek_masks *m)
{
    double waited = m->waited;
    m->waited = -1;
    return waited;
}
