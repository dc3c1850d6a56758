#include "engine/media/features.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void ek_features_init(ek_features *f, int hidden_size, double limit)
{
    *f = (ek_features){.hidden_size = hidden_size, .limit = limit};
}

static bool is_listed(const ek_features *f, const ek_feature *x)
{
    return x->newer || x->older || f->newest == x;
}

static void unlist(ek_features *f, ek_feature *x)
{
    *(x->newer ? &x->newer->older : &f->newest) = x->older;
    *(x->older ? &x->older->newer : &f->oldest) = x->newer;
    x->newer = x->older = NULL;
}

static void list(ek_features *f, ek_feature *x)
{
    x->older = f->newest;
    *(f->newest ? &f->newest->newer : &f->oldest) = x;
    f->newest = x;
}

static void forget(ek_features *f, ek_feature *x)
{
    f->bytes -= (double)x->bytes;
    ek_free_big(x->rows, x->bytes);
    free(x);
}

static void shrink(ek_features *f)
{
    for (ek_feature *x = f->oldest, *next; x && f->idle_bytes > f->limit; x = next) {
        next = x->newer;
        if (x->holders > 0) continue;
        f->idle_bytes -= (double)x->bytes;
        f->evicted++;
        unlist(f, x);
        forget(f, x);
    }
}

void ek_features_fini(ek_features *f)
{
    f->limit = -1;
    shrink(f);
    EK_ASSERT(!f->newest);
}

bool ek_feature_is_of(const ek_feature *x, const ek_media *m)
{
    return x->is_sound == (m->kind == EK_PART_SOUND) && x->tokens == m->tokens &&
           memcmp(x->digest, m->digest, sizeof x->digest) == 0;
}

ek_feature *ek_features_find(ek_features *f, const ek_media *m)
{
    for (ek_feature *x = f->newest; x; x = x->older) {
        if (!ek_feature_is_of(x, m)) continue;
        if (x->holders++ == 0) f->idle_bytes -= (double)x->bytes;
        unlist(f, x);
        list(f, x);
        return x;
    }
    return NULL;
}

ek_err ek_features_make(ek_features *f, const ek_media *m, ek_feature **out)
{
    ek_feature *x = ek_alloc(sizeof *x);
    *x = (ek_feature){.is_sound = m->kind == EK_PART_SOUND, .tokens = m->tokens, .holders = 1};
    memcpy(x->digest, m->digest, sizeof x->digest);
    x->bytes = sizeof *x->rows * (size_t)m->tokens * (size_t)f->hidden_size;
    x->rows = ek_alloc_big(x->bytes);
    if (!x->rows) {
        free(x);
        return ek_fail_in(EK_ENOMEM, "%d rows of features", m->tokens);
    }
    f->bytes += (double)x->bytes;
    *out = x;
    return EK_OK;
}

void ek_features_add(ek_features *f, ek_feature *x)
{
    list(f, x);
}

void ek_features_drop(ek_features *f, ek_feature *x)
{
    EK_ASSERT(x->holders > 0);
    if (--x->holders > 0) return;
    if (!is_listed(f, x)) {
        forget(f, x);
        return;
    }
    f->idle_bytes += (double)x->bytes;
    shrink(f);
}
