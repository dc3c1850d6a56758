/* Prompts with pictures and sounds: cut at every border, again from memory and from disk, without room for features. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/files.h"
#include "cache/store.h"
#include "cases.h"

/* The prompt with pictures that is longest below LONGEST_PROMPT / 2; -1: there is none. */
static int with_pictures(const scene *s)
{
    int best = -1;
    for (int i = 0; i < s->n; i++)
        if (s->ask[i].n_parts > 0 && s->ask[i].n_tokens < LONGEST_PROMPT / 2 &&
            (best < 0 || s->ask[i].n_tokens > s->ask[best].n_tokens))
            best = i;
    return best;
}

static ek_err media_chunks(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    int one = with_pictures(s), which[] = {one};
    for (int chunk = 1; one >= 0 && chunk <= LONGEST_SPAN + 3; chunk += 1 + chunk / 8) {
        char variant[32];
        snprintf(variant, sizeof variant, "chunk %d", chunk);
        ask[0] = s->ask[one];
        company c = {.chunk = chunk, .max_requests = 1};
        EK_TRY(run_cached(s, base, c, variant, ask, which, 1, check, arg));
    }
    return EK_OK;
}

/* What one engine leaves on disk another one begins with; its encoder is not asked for what the pages hold. */
static ek_err media_from_disk(const scene *s, company *base, check_fn *check, void *arg)
{
    ek_ask ask[MAX_ASKS];
    int which[MAX_ASKS], n = s->n < 8 ? s->n : 8;
    char *dir = temp_dir();
    ek_err err = EK_OK;
    uint64_t hits = 0;
    for (int round = 0; round < 2 && !err; round++) {
        ek_store_backend store;
        company c = {.max_requests = n, .chunk = 100, .store = &store};
        for (int i = 0; i < n; i++) {
            ask[i] = s->ask[i];
            if (round) ask[i].prompt_logits_from = ask[i].n_tokens;
            which[i] = i;
        }
        hits = base->hits;
        err = ek_store_sqlite_open(&store, dir, "same", 1e9, ek_model_kv_layout(s->model));
        if (!err) err = run_cached(s, base, c, round ? "from disk" : "to disk", ask, which, n, check, arg);
    }
    for (int i = 0; i < n; i++)
        if (!err && s->ask[i].n_tokens > 2 * EK_PAGE_TOKENS && base->hits == hits)
            err = ek_fail(EK_EINTERNAL, "nothing came from disk");
    remove_dir(dir);
    return err;
}

ek_err media(const scene *s, company *base, check_fn *check, void *arg)
{
    if (!s->media[0]) return EK_OK;
    EK_TRY(media_chunks(s, base, check, arg));
    company all = {.max_requests = 4, .chunk = 40, .feature_bytes = 1e9};
    EK_TRY(cached_again(s, base, "features are there again", all, check, arg));
    int max = (LONGEST_PROMPT + 68 + EK_PAGE_TOKENS) / EK_PAGE_TOKENS;
    company none = {.max_requests = 3, .chunk = 9, .full_pages = max};
    EK_TRY(cached_again(s, base, "no room for features, few pages", none, check, arg));
    return media_from_disk(s, base, check, arg);
}
