#include "engine/publish.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { PATIENCE = 10 }; /* seconds */

typedef struct ek_leaving {
    struct ek_leaving *next;
    ek_request *req;
    ek_event event;
    float *logits;    /* the event's own */
    uint64_t unsaved; /* the last page that the index had not handed to the store (ek_prefix_unsaved_mark) */
    uint64_t saved;   /* pages handed over when that one was */
    bool handed;
    double until;
} ek_leaving;

bool ek_publish_holds(ek_engine *e, ek_request *r, const ek_event *event)
{
    if (!r->publish || !e->store || !e->prefix) return false;
    ek_leaving *l = ek_alloc(sizeof *l), **at = &e->leaving;
    *l = (ek_leaving){.req = r, .event = *event, .unsaved = ek_prefix_unsaved_mark(e->prefix)};
    l->until = ek_now() + PATIENCE;
    if (event->logits) {
        const size_t n = sizeof *l->logits * (size_t)e->rules.vocab_size;
        l->logits = ek_alloc(n);
        memcpy(l->logits, event->logits, n);
        l->event.logits = l->logits;
    }
    while (*at) at = &(*at)->next;
    *at = l;
    return true;
}

static bool is_there(ek_engine *e, ek_leaving *l)
{
    if (!l->handed) {
        if (!ek_prefix_saved_until(e->prefix, l->unsaved)) return false;
        l->saved = ek_store_saved(e->store);
        l->handed = true;
    }
    return ek_store_settled(e->store, l->saved);
}

ek_leaving *ek_publish_next(ek_engine *e, bool now)
{
    for (ek_leaving **at = &e->leaving; *at; at = &(*at)->next) {
        ek_leaving *l = *at;
        if (!now && ek_now() < l->until && !is_there(e, l)) continue;
        *at = l->next;
        return l;
    }
    return NULL;
}

const ek_request *ek_publish_request(const ek_leaving *l)
{
    return l->req;
}

const ek_event *ek_publish_event(const ek_leaving *l)
{
    return &l->event;
}

void ek_publish_end(ek_leaving *l)
{
    ek_request_free(l->req);
    free(l->logits);
    free(l);
}
