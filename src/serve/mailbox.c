#include "serve/mailbox.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"

typedef struct pile {
    ek_turn_news *v; /* text is owned */
    size_t n, cap;
} pile;

/* Two piles take turns, so that after a while nothing is allocated. */
struct ek_mailbox {
    pthread_mutex_t lock;
    pile in, out;
    int fd;
    struct event *wake;
    ek_mail_fn *fn;
};

void ek_mailbox_deliver(ek_mailbox *b)
{
    pthread_mutex_lock(&b->lock);
    pile got = b->in;
    b->in = b->out;
    b->in.n = 0;
    b->out = (pile){0};
    pthread_mutex_unlock(&b->lock);
    for (size_t i = 0; i < got.n; i++) {
        b->fn(&got.v[i]);
        free((char *)(uintptr_t)got.v[i].text);
    }
    got.n = 0;
    pthread_mutex_lock(&b->lock);
    if (b->out.v) free(got.v); /* a delivery inside a delivery left its own */
    else b->out = got;
    pthread_mutex_unlock(&b->lock);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    uint64_t count;
    (void)what;
    /* Emptied before the pile is taken: a post in between wakes us once more. */
    if (read(fd, &count, sizeof count) < 0 && errno != EAGAIN) return;
    ek_mailbox_deliver(arg);
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
    pthread_mutex_unlock(&b->lock);
    uint64_t one = 1;
    if (first && write(b->fd, &one, sizeof one) < 0) return; /* a full counter has woken the reader already */
}

ek_err ek_mailbox_open(ek_mailbox **out, struct event_base *base, ek_mail_fn *fn)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) return ek_fail(EK_EIO, "no event descriptor: %s", strerror(errno));
    ek_mailbox *b = ek_alloc(sizeof *b);
    pthread_mutex_init(&b->lock, NULL);
    b->fd = fd;
    b->fn = fn;
    b->wake = event_new(base, fd, EV_READ | EV_PERSIST, on_wake, b);
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
