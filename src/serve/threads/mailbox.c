#include "serve/threads/threads.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/linux.h"
#include "serve/http/http.h"

typedef struct pile {
    ek_turn_news *v; /* text is owned */
    size_t n, cap;
} pile;

/* Two piles take turns, so that soon nothing is allocated. */
struct ek_mailbox {
    pthread_mutex_t lock;
    pile in;            /* under the lock, like the members below */
    bool gathers;       /* the poster will report the end of a series of posts; */
    bool owes;          /* then the reader has to be woken */
    pile out;           /* being delivered */
    size_t n_delivered; /* of out */
    ek_loop *loop;
    int fd;
    struct event *wake;
    ek_mail_fn *fn;
};

static void wake(const ek_mailbox *b)
{
    uint64_t one = 1;
    if (write(b->fd, &one, sizeof one) < 0) return; /* EAGAIN: the counter is full, so the reader was woken already */
}

/* loop: NULL delivers everything. A delivery inside a delivery continues the outer one. */
static void deliver(ek_mailbox *b, ek_loop *loop)
{
    for (;;) {
        if (b->n_delivered == b->out.n) {
            pthread_mutex_lock(&b->lock);
            pile got = b->in;
            b->in = b->out;
            b->in.n = 0;
            b->out = got;
            b->n_delivered = 0;
            pthread_mutex_unlock(&b->lock);
            if (got.n == 0) return;
        }
        ek_turn_news news = b->out.v[b->n_delivered++];
        b->fn(&news);
        free((char *)(uintptr_t)news.text);
        if (!ek_loop_spent(loop)) continue;
        wake(b);
        return;
    }
}

void ek_mailbox_deliver(ek_mailbox *b)
{
    deliver(b, NULL);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    ek_mailbox *b = arg;
    uint64_t count;
    (void)what;
    /* The counter is emptied before the pile is taken, so a post in between wakes the reader once more. */
    if (read(fd, &count, sizeof count) < 0 && errno != EAGAIN) return;
    deliver(b, b->loop);
}

void ek_mailbox_post(void *box, const ek_turn_news *news)
{
    ek_mailbox *b = box;
    ek_turn_news copy = *news;
    if (news->text) copy.text = ek_strdup(news->text);
    pthread_mutex_lock(&b->lock);
    bool first = b->in.n == 0;
    if (b->in.n == b->in.cap) {
        b->in.cap = b->in.cap ? 2 * b->in.cap : 256;
        b->in.v = ek_realloc(b->in.v, b->in.cap * sizeof *b->in.v);
    }
    b->in.v[b->in.n++] = copy;
    if (first && b->gathers) first = false, b->owes = true;
    pthread_mutex_unlock(&b->lock);
    if (first) wake(b);
}

void ek_mailbox_gather(void *box, bool begin)
{
    ek_mailbox *b = box;
    pthread_mutex_lock(&b->lock);
    b->gathers = begin;
    const bool owes = b->owes && !begin;
    b->owes = b->owes && begin;
    pthread_mutex_unlock(&b->lock);
    if (owes) wake(b);
}

ek_err ek_mailbox_open(ek_mailbox **out, ek_loop *loop, ek_mail_fn *fn)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) return ek_fail(EK_EIO, "no event descriptor: %s", strerror(errno));
    ek_mailbox *b = ek_alloc(sizeof *b);
    pthread_mutex_init(&b->lock, NULL);
    b->fd = fd;
    b->fn = fn;
    b->loop = loop;
    b->wake = event_new(loop->base, fd, EV_READ | EV_PERSIST, on_wake, b);
    event_add(b->wake, NULL);
    *out = b;
    return EK_OK;
}

void ek_mailbox_close(ek_mailbox *b)
{
    ek_mailbox_deliver(b);
    event_free(b->wake);
    close(b->fd);
    free(b->in.v);
    free(b->out.v);
    pthread_mutex_destroy(&b->lock);
    free(b);
}
