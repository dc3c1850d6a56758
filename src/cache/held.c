#include "cache/held.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/linux.h"

/* --- names of salts */

ek_salt_name *ek_salt_name_make(const char *text, size_t n)
{
    ek_salt_name *s = ek_alloc(sizeof *s + n + 1);
    atomic_init(&s->refs, 1);
    s->n = n;
    memcpy(s->text, text, n);
    return s;
}

ek_salt_name *ek_salt_name_retain(ek_salt_name *s)
{
    if (s) atomic_fetch_add(&s->refs, 1);
    return s;
}

void ek_salt_name_release(ek_salt_name *s)
{
    if (s && atomic_fetch_sub(&s->refs, 1) == 1) free(s);
}

/* --- the ring: records of 8-byte words. A stored page: the number of words that follow, hash, parent, salt, tokens,
 * names. A removed page: a zero and its hash */

enum {
    WENT = 2,
    TOKENS = EK_PAGE_TOKENS / 2, /* words */
    CAME = 4 + TOKENS            /* without names */
};

struct ek_held_queue {
    uint64_t *word;
    uint64_t n_words;             /* a power of two */
    _Atomic(uint64_t) head, tail; /* words written, words taken; always whole records */
    uint64_t reported;            /* pages with reserved room for the report of their removal; writer only */
    bool news;                    /* something was written since the last flush; writer only */
    int fd;
};

ek_err ek_held_open(ek_held_queue **out, int max_pages, int n_waiting)
{
    ek_held_queue *q = ek_alloc(sizeof *q);
    uint64_t want = WENT * (uint64_t)max_pages + (CAME + EK_HELD_MEDIA) * (uint64_t)n_waiting;
    for (q->n_words = 64; q->n_words < want;) q->n_words *= 2;
    q->word = ek_alloc(sizeof *q->word * q->n_words);
    q->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    *out = q;
    if (q->fd >= 0) return EK_OK;
    int why = errno;
    ek_held_close(q);
    *out = NULL;
    return ek_fail(EK_EIO, "no descriptor to tell of cached pages: %s", strerror(why));
}

void ek_held_close(ek_held_queue *q)
{
    ek_held_change c;
    if (!q) return;
    while (ek_held_take(q, &c)) ek_salt_name_release(c.page.salt);
    if (q->fd >= 0) close(q->fd);
    free(q->word);
    free(q);
}

static uint64_t *at(const ek_held_queue *q, uint64_t i)
{
    return &q->word[i & (q->n_words - 1)];
}

bool ek_held_came(ek_held_queue *q, const ek_held_page *p)
{
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
    uint64_t used = head - atomic_load_explicit(&q->tail, memory_order_acquire);
    uint64_t n = CAME + (uint64_t)p->n_media;
    if (used + n + WENT * (q->reported + 1) > q->n_words) return false;
    *at(q, head++) = 1 | (uint64_t)p->first << 8 | (uint64_t)p->n_media << 16;
    *at(q, head++) = p->hash;
    *at(q, head++) = p->parent;
    *at(q, head++) = (uint64_t)(uintptr_t)ek_salt_name_retain(p->salt);
    for (int i = 0; i < EK_PAGE_TOKENS; i += 2)
        *at(q, head++) = (uint32_t)p->token[i] | (uint64_t)(uint32_t)p->token[i + 1] << 32;
    for (int i = 0; i < p->n_media; i++) *at(q, head++) = p->media[i];
    q->reported++;
    q->news = true;
    atomic_store_explicit(&q->head, head, memory_order_release);
    return true;
}

void ek_held_went(ek_held_queue *q, uint64_t hash)
{
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
    EK_ASSERT(q->reported > 0 && head - atomic_load_explicit(&q->tail, memory_order_acquire) + WENT <= q->n_words);
    *at(q, head++) = 0;
    *at(q, head++) = hash;
    q->reported--;
    q->news = true;
    atomic_store_explicit(&q->head, head, memory_order_release);
}

void ek_held_flush(ek_held_queue *q)
{
    static const uint64_t one = 1;
    if (!q->news) return;
    q->news = false;
    while (write(q->fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

int ek_held_fd(const ek_held_queue *q)
{
    return q->fd;
}

bool ek_held_take(ek_held_queue *q, ek_held_change *out)
{
    uint64_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
    if (tail == atomic_load_explicit(&q->head, memory_order_acquire)) return false;
    uint64_t what = *at(q, tail++);
    ek_held_page *p = &out->page;
    out->came = what != 0;
    p->hash = *at(q, tail++);
    p->salt = NULL;
    if (out->came) {
        p->first = what >> 8 & 1;
        p->n_media = (int)(what >> 16);
        p->parent = *at(q, tail++);
        p->salt = (ek_salt_name *)(uintptr_t)*at(q, tail++);
        for (int i = 0; i < EK_PAGE_TOKENS; i += 2) {
            uint64_t two = *at(q, tail++);
            p->token[i] = (int32_t)(uint32_t)two;
            p->token[i + 1] = (int32_t)(uint32_t)(two >> 32);
        }
        for (int i = 0; i < p->n_media; i++) p->media[i] = *at(q, tail++);
    }
    atomic_store_explicit(&q->tail, tail, memory_order_release);
    return true;
}
