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
