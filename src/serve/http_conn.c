/* Connection operations that requests (http.c) and replies (http_reply.c) share. */
#include <event2/event.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "serve/http_state.h"

void ek_http_wake(ek_exchange *x)
{
    if (!x->suspended) return;
    x->suspended = false;
    MHD_resume_connection(x->conn->mhd);
    struct timeval now = {0, 0};
    event_add(x->http->again, &now);
}

void ek_http_kill(ek_conn *c)
{
    shutdown(c->fd, SHUT_RDWR);
    if (!c->x) return;
    c->x->cut = true;
    ek_http_wake(c->x); /* a suspended connection is looked at by nobody */
}

enum MHD_Result ek_exchange_queue(ek_exchange *x)
{
    if (x->queued) return MHD_YES;
    x->queued = true;
    return MHD_queue_response(x->conn->mhd, (unsigned)x->status, x->response);
}

void ek_exchange_free(ek_exchange *x)
{
    ek_http *s = x->http;
    if (x->dispatched) s->n_busy--;
    s->body_bytes -= x->body_counted;
    for (int i = 0; i < x->n_headers; i++) {
        free(x->header[i].name);
        free(x->header[i].value);
    }
    free(x->header);
    free(x->method);
    free(x->path);
    ek_buf_fini(&x->body);
    ek_buf_fini(&x->out);
    if (x->response) MHD_destroy_response(x->response);
    free(x);
}
