#include "engine/cached.h"

ek_prefix_key ek_reuse_key(const ek_request *r, int n)
{
    return (ek_prefix_key){.salt = r->cache.salt,
                           .owner = r->cache.owner,
                           .salt_name = r->cache.salt_name,
                           .token = r->tokens,
                           .n = n,
                           .content = r->cache.content,
                           .n_content = r->cache.n_content};
}

/* --- the positions of sliding layers that are kept ---
 *
 * A later prompt may continue this one at its end (the next turn), where this one differed from an earlier prompt (a
 * shared beginning), or somewhere before its end (the same beginning and another question). The last position is
 * unknown, so kept positions have distances from the end that grow fourfold. The tokens computed again are then at most
 * about four times those that differ. */
enum { FIRST_DISTANCE = 512, GROWTH = 4 };

static int page_of(int pos)
{
    return pos / EK_PAGE_TOKENS;
}

/* Keeps the pages that let a sequence begin at each position in [from, to]. */
static void keep_for(ek_request *r, int from, int to, bool seldom)
{
    int lo = page_of(from) * EK_PAGE_TOKENS - r->window + 1;
    if (r->cache.n_keep == EK_MAX_KEEP) return;
    r->cache.keep[r->cache.n_keep++] = (ek_prefix_keep){
        .first = lo > 0 ? page_of(lo) : 0, .end = page_of(to + EK_PAGE_TOKENS - 1), .seldom = seldom};
}

/* begin: the position at which r would begin if all sliding pages existed. It begins at n_hit. */
static void choose_keep(ek_request *r, int begin)
{
    r->cache.n_keep = 0;
    keep_for(r, r->n_prompt - 1, r->n_prompt, false);
    if (begin > r->cache.n_hit && begin < r->n_prompt - 1) keep_for(r, begin, begin, false);
    for (int64_t d = FIRST_DISTANCE; d < r->n_prompt; d *= GROWTH)
        keep_for(r, r->n_prompt - (int)d, r->n_prompt - (int)d, true);
    r->cache.passed = false;
}

/* --- waiting */

static bool same_content(const ek_request *a, const ek_request *b, int pos)
{
    static const ek_content_id text;
    const ek_content_id *x = pos < a->cache.n_content ? &a->cache.content[pos] : &text;
    const ek_content_id *y = pos < b->cache.n_content ? &b->cache.content[pos] : &text;
    return x->h[0] == y->h[0] && x->h[1] == y->h[1];
}

/* The number of equal leading tokens, at most n. */
static int common(const ek_request *a, const ek_request *b, int n)
{
    int i = 0;
    if (a->cache.salt != b->cache.salt) return 0;
    while (i < n && a->tokens[i] == b->tokens[i] && same_content(a, b, i)) i++;
    return i;
}

/* The number of whole pages of r's first tokens that the running request q will still make; the index takes only whole
 * pages from it. 0: none. n: the position at which r could then begin. */
static int pages_to_come(const ek_request *q, const ek_request *r, int *n)
{
    int max = ek_reuse_max(r), pages;
    *n = common(q, r, max < q->n_tokens ? max : q->n_tokens);
    pages = page_of(*n + EK_PAGE_TOKENS - 1); /* a part of the last page is useful */
    if (pages > page_of(q->n_tokens)) pages = page_of(q->n_tokens);
    if (*n > pages * EK_PAGE_TOKENS) *n = pages * EK_PAGE_TOKENS;
    *n = ek_request_before_span(r, *n);
    return page_of(q->n_done) < pages ? pages : 0;
}

static bool still_waits(const ek_engine *e, const ek_request *r)
{
    for (int i = 0; i < e->n_running; i++)
        if (e->running[i]->id == r->cache.wait_for) return page_of(e->running[i]->n_done) < r->cache.wait_pages;
    return false;
}

bool ek_reuse_waits(ek_engine *e, ek_request *r)
{
    if (!e->prefix) return false;
    if (r->cache.wait_for && still_waits(e, r)) return true;
    r->cache.wait_for = 0;
    int best = -1;
    ek_request *from = NULL;
    for (int i = 0; i < e->n_running; i++) {
        ek_request *q = e->running[i];
        if (ek_request_rows_left(q) <= 1) continue;
        int n, pages = pages_to_come(q, r, &n);
        if (pages == 0 || n <= best) continue;
        best = n, from = q;
        r->cache.wait_pages = pages;
    }
    if (!from) return false;
    ek_prefix_key key = ek_reuse_key(r, r->n_tokens);
    ek_prefix_find(e->prefix, &key);
    if (best - ek_prefix_usable(e->prefix, ek_reuse_max(r)) < EK_PAGE_TOKENS) return false;
    keep_for(from, best, best, false); /* the pages of sliding layers with which r begins */
    r->cache.wait_for = from->id;
    ek_engine_count(e, &e->stats.cache_waits);
    return true;
}

/* --- taking */

int ek_reuse_max(const ek_request *r)
{
    int max = r->n_tokens - 1;
    return r->next_prompt_logits < r->n_given && max > r->next_prompt_logits ? r->next_prompt_logits : max;
}

void ek_reuse_adopt(ek_engine *e, ek_request *r)
{
    r->cache.n_hit = r->cache.n_found = 0;
    if (!e->prefix) return;
    ek_prefix_key key = ek_reuse_key(r, r->n_tokens);
    r->cache.n_found = ek_prefix_find(e->prefix, &key);
    int max = ek_reuse_max(r);
    if (max > r->cache.n_found) max = r->cache.n_found;
    int n = ek_prefix_usable(e->prefix, max);
    for (int cut; n > 0 && (cut = ek_request_before_span(r, n)) < n;) n = ek_prefix_usable(e->prefix, cut);
    /* If there is no page for a copy, the hit ends earlier, which may be inside a span; then there is no hit. */
    if (n > 0) n = ek_prefix_adopt(e->prefix, &r->table, n);
    if (ek_request_before_span(r, n) < n) {
        ek_page_table_clear(&r->table, e->pages);
        n = 0;
    }
    r->cache.n_hit = r->n_done = n;
    choose_keep(r, max);
}

bool ek_reuse_suffices(ek_engine *e, ek_request *r)
{
    if (r->turn.admitted || r->cache.min_cached <= 0 ||
        (float)r->cache.n_hit >= r->cache.min_cached * (float)(r->n_prompt - 1))
        return true;
    r->cache.n_cached = r->cache.n_hit; /* the number that the event reports */
    ek_reuse_return(e, r);
    r->cache.uncached = e->any_uncached = true;
    return false;
}

void ek_reuse_return(ek_engine *e, ek_request *r)
{
    ek_page_table_clear(&r->table, e->pages);
    r->n_done = 0;
}

static void report(const ek_engine *e, const ek_request *r)
{
    int found = r->cache.n_found < r->n_prompt ? r->cache.n_found : r->n_prompt;
    ek_cache_report c = {.tokens = r->tokens, .n_prompt = r->n_prompt, .n_found = found, .n_used = r->cache.n_hit};
    c.other = ek_prefix_rival(e->prefix, &c.other_first, &c.n_other);
    r->cache.on_cache(r->user, &c);
}

/* Notes the cached tokens, and those of pictures and sounds that are wholly cached and therefore not encoded. */
static void note_cached(ek_request *r)
{
    r->cache.n_cached = r->cache.n_hit;
    if (r->cache.reading) atomic_store(&r->cache.reading->cached, r->cache.n_hit);
    if (r->cache.reading) atomic_store(&r->cache.reading->done, r->cache.n_hit);
    for (int i = 0; i < r->media.n_parts && r->media.span[i].end <= r->cache.n_hit; i++) {
        r->media.part[i].seen = true;
        r->media.n_kept[r->media.part[i].media->kind == EK_PART_SOUND] += r->media.part[i].media->tokens;
    }
}

void ek_reuse_admitted(ek_engine *e, ek_request *r)
{
    bool first = !r->turn.admitted;
    r->turn.admitted = true;
    if (first) note_cached(r);
    if (!e->prefix) return;
    if (first && r->cache.on_cache) report(e, r);
    const ek_prefix_key key = ek_reuse_key(r, r->n_tokens);
    if (first) ek_prefix_began(e->prefix, &key, r->cache.n_hit);
    pthread_mutex_lock(&e->lock);
    e->stats.cache_lookups++;
    e->stats.cache_hits += r->cache.n_hit > 0;
    e->stats.cache_tokens += (uint64_t)r->cache.n_hit;
    pthread_mutex_unlock(&e->lock);
}

/* --- leaving */

void ek_reuse_capture(ek_engine *e, ek_request *r)
{
    if (!e->prefix || page_of(r->n_done) == r->cache.n_captured) return;
    r->cache.n_captured = page_of(r->n_done);
    ek_prefix_key key = ek_reuse_key(r, r->n_done);
    ek_prefix_put(e->prefix, &key, &r->table, r->n_done, r->cache.keep, r->cache.n_keep, false);
    if (r->cache.passed || page_of(r->n_done) < page_of(r->n_prompt)) return;
    ek_prefix_passed(e->prefix, &key, r->cache.n_hit, &r->cache.keep[0]);
    r->cache.passed = true;
}

void ek_reuse_give(ek_engine *e, ek_request *r)
{
    r->cache.n_captured = 0;
    if (!e->prefix || r->n_done == 0 || r->cache.suspect) return;
    ek_prefix_key key = ek_reuse_key(r, r->n_done);
    ek_prefix_put(e->prefix, &key, &r->table, r->n_done, r->cache.keep, r->cache.n_keep, true);
}
