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

void ek_engine_divide(ek_share *share, int n, int chunk)
{
    int first = -1;
    int64_t others = 0;
    for (int i = 0; i < n; i++) {
        share[i].max = 0, share[i].of_client = 0;
        if (share[i].left == 0) continue;
        if (first < 0) first = i;
        else others += share[i].left;
    }
    if (first < 0) return;
    share[first].max = ek_engine_oldest_share(chunk, others);
    chunk -= share[first].left < share[first].max ? share[first].left : share[first].max;
    for (int i = first + 1; i < n; i++)
        for (int j = first + 1; j < n; j++)
            if (share[j].client == share[i].client) share[i].of_client += share[j].left;
    while (chunk > 0) {
        const ek_share *next = NULL;
        for (int i = first + 1; i < n; i++)
            if (share[i].left > 0 && share[i].max == 0 && (!next || share[i].of_client < next->of_client))
                next = &share[i];
        if (!next) return;
        for (ek_share *s = share + first + 1; s < share + n && chunk > 0; s++) {
            if (s->left == 0 || s->client != next->client) continue;
            s->max = s->left < chunk ? s->left : chunk;
            chunk -= s->max;
        }
    }
}
