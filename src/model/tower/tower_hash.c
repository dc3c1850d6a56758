/* Digests of everything that rows depend on besides the pixels or samples. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "model/tower/tower_state.h"

/* Hashes panels in order, on whatever nodes they lie. */
static uint64_t hash_matrix(uint64_t h, const ek_linear *w, const ek_pool *pool)
{
    const int nodes = w->parts ? ek_pool_nodes(pool) : 1;
    const int shape[] = {(int)w->form, w->n, w->k, w->group, w->a_group, w->bits, w->limbs};
    h = ek_hash64(h, shape, sizeof shape);
    for (int j = 0; j < nodes; j++) {
        const int first = w->parts ? w->parts->first[j] : 0, end = w->parts ? w->parts->first[j + 1] : w->n_panels;
        const uint8_t *at = w->parts ? w->parts->data[j] : w->data;
        for (int p = first; p < end; p++, at += w->panel_bytes) h = ek_hash64(h, at, w->panel_bytes);
    }
    return h;
}

static uint64_t hash_item(const ek_item *it, const ek_pool *pool)
{
    uint64_t h = ek_fnv1a64(it->name);
    if (it->matrix) return hash_matrix(h, it->matrix, pool);
    if (it->vector) return ek_hash64(h, *it->vector, sizeof(float) * (size_t)it->data.k);
    if (!it->data.plane[0]) return h; /* synthetic */
    const size_t row = ek_weight_row_bytes(it->data.type, it->data.k);
    return ek_hash64(h, it->data.plane[0], row * (size_t)it->data.n);
}

typedef struct hashing {
    const ek_sense *s;
    const ek_pool *pool;
    uint64_t *of;
} hashing;

static void hash_task(void *arg, int task, int worker)
{
    hashing *a = arg;
    (void)worker;
    a->of[task] = hash_item(&a->s->bound.items.item[task], a->pool);
}

static ek_err digest(ek_towers *t, ek_sense *s, uint64_t *out)
{
    EK_TRY(ek_sense_load(t, s));
    if (!s->digested) {
        const int n = s->bound.items.n;
        hashing a = {s, t->opts.pool, ek_alloc(sizeof *a.of * (size_t)(n + 1))};
        ek_pool_run(t->opts.pool, hash_task, &a, n);
        s->digest = ek_hash64(EK_ARITHMETIC_VERSION, a.of, sizeof *a.of * (size_t)n);
        s->digest = s->part->ops->hash(s->part, s->digest);
        s->digested = true;
        free(a.of);
    }
    *out = s->digest;
    return EK_OK;
}

ek_err ek_towers_digest_image(ek_towers *t, uint64_t *out)
{
    EK_TRY(ek_towers_takes_image(t));
    return digest(t, &t->image, out);
}

ek_err ek_towers_digest_sound(ek_towers *t, uint64_t *out)
{
    EK_TRY(ek_towers_takes_sound(t));
    return digest(t, &t->sound, out);
}
