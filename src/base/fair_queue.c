#include "base/fair_queue.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/err.h"

enum { MAX_IDLE = 1024 }; /* number of clients without items that are remembered because they just had their turn */

static ek_fair_queue_client *find(const ek_fair_queue *t, uint64_t id)
{
    for (int i = 0; i < t->n_clients; i++)
        if (t->client[i].id == id) return &t->client[i];
    return NULL;
}

/* Forgets clients without items whose next turn is no later than a new client's would be; with too many clients, also
 * others. */
static void tidy(ek_fair_queue *t)
{
    int n = 0, idle = 0;
    for (int i = 0; i < t->n_clients; i++) {
        const ek_fair_queue_client *c = &t->client[i];
        if (c->n == 0 && (c->next <= t->now || idle == MAX_IDLE)) continue;
        idle += c->n == 0;
        t->client[n++] = *c;
    }
    t->n_clients = n;
}

uint64_t ek_fair_queue_enter(ek_fair_queue *t, uint64_t id, uint64_t cost)
{
    ek_fair_queue_client *c = find(t, id);
    if (!c) {
        if (t->n_clients == t->cap) tidy(t);
        if (t->n_clients == t->cap) {
            t->cap = t->cap ? 2 * t->cap : 16;
            t->client = ek_realloc(t->client, (size_t)t->cap * sizeof *t->client);
        }
        c = &t->client[t->n_clients++];
        *c = (ek_fair_queue_client){.id = id};
    }
    uint64_t turn = c->next > t->now ? c->next : t->now;
    c->next = turn + (cost ? cost : 1);
    c->n++;
    t->n++;
    return turn;
}

void ek_fair_queue_charge(ek_fair_queue *t, uint64_t id, uint64_t more)
{
    ek_fair_queue_client *c = find(t, id);
    if (c) c->next += more;
}

void ek_fair_queue_begin(ek_fair_queue *t, uint64_t turn)
{
    if (turn > t->now) t->now = turn;
}

uint64_t ek_fair_queue_again(ek_fair_queue *t, uint64_t id, uint64_t turn, uint64_t cost)
{
    ek_fair_queue_client *c = find(t, id);
    EK_ASSERT(c && c->n > 0);
    turn = (turn > t->now ? turn : t->now) + (cost ? cost : 1);
    if (c->next < turn) c->next = turn;
    return turn;
}

void ek_fair_queue_leave(ek_fair_queue *t, uint64_t id)
{
    ek_fair_queue_client *c = find(t, id);
    EK_ASSERT(c && c->n > 0);
    c->n--;
    if (--t->n == 0) t->n_clients = 0;
}

int ek_fair_queue_clients(const ek_fair_queue *t)
{
    int n = 0;
    for (int i = 0; i < t->n_clients; i++) n += t->client[i].n > 0;
    return n;
}

bool ek_fair_queue_has_room(const ek_fair_queue *t, uint64_t id, int room)
{
    const ek_fair_queue_client *own = find(t, id);
    if (t->n < room) return true;
    const int clients = ek_fair_queue_clients(t) + (!own || own->n == 0);
    return clients > 1 && t->n < 2 * (int64_t)room && (own ? own->n : 0) < (room + clients - 1) / clients;
}

void ek_fair_queue_fini(ek_fair_queue *t)
{
    free(t->client);
    *t = (ek_fair_queue){0};
}
