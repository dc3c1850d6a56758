#include "engine/cached.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/hash/rng.h"

void ek_audit_open(ek_engine *e)
{
    ek_audit *a = &e->audit;
    if (e->opts.cache_audit <= 0 || !e->prefix || !e->on.read_page) return;
    a->tokens = ek_alloc(sizeof *a->tokens * (size_t)e->sizes.max_ctx);
    for (int k = 0; k < EK_KIND_COUNT; k++)
        for (int i = 0; i < 2; i++) a->bytes[k][i] = ek_alloc(ek_kv_page_bytes_max(e->on.layout, (ek_layer_kind)k) + 1);
    ek_page_table_init(&a->table, e->on.layout, e->sizes.max_ctx);
}

void ek_audit_close(ek_engine *e)
{
    ek_audit *a = &e->audit;
    if (!a->tokens) return;
    ek_page_table_clear(&a->table, e->pages);
    ek_page_table_fini(&a->table);
    free(a->tokens);
    for (int k = 0; k < EK_KIND_COUNT; k++)
        for (int i = 0; i < 2; i++) free(a->bytes[k][i]);
    *a = (ek_audit){0};
}

void ek_audit_note(ek_engine *e, const ek_request *r, int n)
{
    ek_audit *a = &e->audit;
    n = n / EK_PAGE_TOKENS * EK_PAGE_TOKENS;
    if (!a->tokens || n == 0) return;
    double draw = (double)(ek_mix64(a->hits++) >> 11) * 0x1p-53;
    if (a->n > 0 || r->cache.n_content > 0 || draw >= e->opts.cache_audit) return;
    memcpy(a->tokens, r->tokens, sizeof *a->tokens * (size_t)n);
    a->n = n;
    a->salt = r->cache.salt;
}

void ek_audit_pause(ek_engine *e)
{
    if (e->audit.tokens && e->audit.table.n > 0) ek_page_table_clear(&e->audit.table, e->pages);
}

static void end(ek_engine *e)
{
    ek_audit_pause(e);
    e->audit.n = 0;
}

/* Computes the first n tokens, in their own pages. */
static ek_err compute(ek_engine *e, int n)
{
    ek_audit *a = &e->audit;
    const int pos = a->table.n;
    EK_TRY(ek_page_table_extend(&a->table, e->pages, n));
    for (int i = 0; i < n; i++)
        e->plan.row[i] = ek_text_row(a->tokens[pos + i], pos + i, 0, false, e->on.layout->sliding_window);
    const ek_seq seq = ek_table_seq(&a->table, 0);
    const ek_step step = {.row = e->plan.row,
                          .n_rows = n,
                          .seq = &seq,
                          .n_seqs = 1,
                          .shown = e->plan.shown,
                          .digested = e->plan.digested};
    return e->on.step(e->on.arg, &step);
}

/* Whether the cached page i, if there is one, equals the computed one. */
static bool agrees(ek_engine *e, int i)
{
    ek_audit *a = &e->audit;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        ek_layer_kind kind = (ek_layer_kind)k;
        int32_t page = ek_prefix_page(e->prefix, kind, i);
        if (page == EK_NO_PAGE || i < a->table.first[k] || i >= a->table.end[k]) continue;
        ek_layer_kind pages = ek_kv_page_kind(e->on.layout, kind, i);
        e->on.read_page(e->on.arg, pages, page, a->bytes[k][0]);
        e->on.read_page(e->on.arg, pages, a->table.page[k][i], a->bytes[k][1]);
        ek_engine_note_broken(e);
        if (e->broken[0]) return true; /* nothing was read */
        if (memcmp(a->bytes[k][0], a->bytes[k][1], e->on.layout->page_bytes[pages]) != 0) return false;
    }
    return true;
}

static void evict(ek_engine *e, const ek_prefix_key *key, int i)
{
    int pages = ek_shelf_drop(e, key, i);
    ek_engine_count(e, &e->stats.cache_audit_mismatches);
    ek_log(EK_LOG_ERROR,
           "cache audit: the cached page of positions %d to %d is not what computing it again gives: %d pages dropped",
           i * EK_PAGE_TOKENS, i * EK_PAGE_TOKENS + EK_PAGE_TOKENS - 1, pages);
}

bool ek_audit_step(ek_engine *e)
{
    ek_audit *a = &e->audit;
    if (!a->tokens || a->n == 0) return false;
    pthread_mutex_lock(&e->lock);
    bool closed = e->closed;
    pthread_mutex_unlock(&e->lock);
    if (closed) return false;
    int done = a->table.n, n = a->n - done < e->opts.chunk ? a->n - done : e->opts.chunk;
    n = ek_page_table_room(&a->table, e->pages, n);
    if (n == 0 || compute(e, n) != EK_OK) { /* no room, or a failure: that is no finding of the audit */
        end(e);
        return true;
    }
    ek_prefix_key key = {.salt = a->salt, .token = a->tokens, .n = a->n};
    int found = ek_prefix_find(e->prefix, &key);
    for (int i = done / EK_PAGE_TOKENS; i < a->table.n / EK_PAGE_TOKENS; i++)
        if (!agrees(e, i)) {
            evict(e, &key, i);
            end(e);
            return true;
        }
    ek_page_table_trim(&a->table, e->pages, a->table.n);
    if (a->table.n == a->n) ek_engine_count(e, &e->stats.cache_audits);
    if (a->table.n == a->n || found <= a->table.n) end(e); /* done, or the rest was evicted meanwhile */
    return true;
}
