/* Exchanges without a connection: the reply goes to a sink. */
#include <event2/event.h>

#include "base/alloc.h"
#include "serve/http/http_state.h"

/* Wakes the owner like a connection would: not within the call that sent. */
static void on_woken(evutil_socket_t fd, short what, void *arg)
{
    ek_exchange *x = arg;
    (void)fd, (void)what;
    if (x->ended) ek_exchange_free(x);
    else if (x->drained) x->drained(x->gone_user);
}

ek_exchange *ek_exchange_detach(const ek_exchange *from, const ek_sink *sink, void *arg)
{
    ek_exchange *x = ek_alloc(sizeof *x);
    x->http = from->http;
    x->number = from->number;
    x->method = ek_strdup(from->method);
    x->path = ek_strdup(from->path);
    x->sink = sink;
    x->sink_arg = arg;
    x->woken = event_new(from->http->base, -1, 0, on_woken, x);
    x->dispatched = x->begun = true;
    x->http->n_busy++;
    return x;
}

void ek_exchange_drop(ek_exchange *x)
{
    void (*gone)(void *user) = x->gone;
    x->gone = NULL;
    if (gone) gone(x->gone_user);
    ek_exchange_free(x);
}
