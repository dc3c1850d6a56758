/* Pages that another process left on a server: as it wrote them, and changed. A real server, on a loopback address;
 * nothing where there is none. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/redis.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "cache/store.h"
#include "cases.h"

enum { ASKS = 4 };

static ek_err open_store(ek_store_backend *out, const redis_server *r, const scene *s)
{
    const ek_shared_opts o = {.url = r->url, .max_bytes = 1e9};
    EK_TRY(ek_store_shared_open(out, &o, ek_model_numerics_id(s->model), ek_model_kv_layout(s->model)));
    for (double end = ek_now() + 5; atomic_load(&out->shared->connected) < 2 && ek_now() < end;) usleep(500);
    return EK_OK;
}

/* Every value gets one bit or the value of the key before it, in turns. */
static void change_all(const redis_server *r)
{
    int n;
    size_t held_n = 0;
    char *keys = redis_keys(r, "evenkeel:page:1:", &n);
    unsigned char *held = NULL;
    n = 0;
    for (char *at = keys, *key; (key = strtok_r(at, " ", &at)) != NULL; n++) {
        size_t size;
        unsigned char *value = redis_get(r, key, &size);
        if (n % 2) {
            redis_set(r, key, held, held_n);
        } else {
            value[ek_mix64((uint64_t)n) % size] ^= (unsigned char)(1 << n % 8);
            redis_set(r, key, value, size);
        }
        free(held);
        held = value, held_n = size;
    }
    free(held);
    free(keys);
}

static ek_err with_server(const scene *s, company *base, check_fn *check, void *arg, const redis_server *r)
{
    static const char *const rounds[] = {"to a server", "from a server", "from a server whose pages are wrong"};
    ek_ask ask[ASKS];
    int which[ASKS], n = s->n < ASKS ? s->n : ASKS, longest = 0;
    for (int round = 0; round < 3; round++) {
        ek_store_backend store;
        company c = {.max_requests = n, .chunk = 100, .store = &store};
        for (int i = 0; i < n; i++) {
            ask[i] = s->ask[i];
            if (round) ask[i].prompt_logits_from = ask[i].n_tokens;
            if (ask[i].n_tokens > longest) longest = ask[i].n_tokens;
            which[i] = i;
        }
        if (round == 2) change_all(r);
        EK_TRY(open_store(&store, r, s));
        const uint64_t hits = base->hits;
        EK_TRY(run_cached(s, base, c, rounds[round], ask, which, n, check, arg));
        if (round == 1 && longest > 2 * EK_PAGE_TOKENS && base->hits == hits)
            return ek_fail(EK_EINTERNAL, "nothing came from the server");
    }
    return EK_OK;
}

ek_err shared(const scene *s, company *base, check_fn *check, void *arg)
{
    redis_server r;
    if (!redis_start(&r, NULL)) return EK_OK;
    ek_err err = with_server(s, base, check, arg, &r);
    redis_end(&r);
    return err;
}
