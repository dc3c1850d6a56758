#include "engine/state.h"

#include <stdio.h>

void ek_engine_note_broken(ek_engine *e)
{
    const char *why = e->on.broken ? e->on.broken(e->on.arg) : NULL;
    if (!why) return;
    pthread_mutex_lock(&e->lock);
    snprintf(e->broken, sizeof e->broken, "%s", why);
    pthread_mutex_unlock(&e->lock);
}

int ek_engine_oldest_share(int chunk, int64_t others)
{
    const int half = (chunk + 1) / 2;
    return others < chunk - half ? chunk - (int)others : half;
}
