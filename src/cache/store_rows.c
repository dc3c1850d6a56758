#include "cache/store_sqlite.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/store.h"

/* Within a batch the beginning of a prompt gets a later time of use than its continuation, because a page is useless
 * without the pages before it and the oldest are deleted first. */
static int64_t stamp(int depth)
{
    return ek_unix_time() << 16 | (0xffff - (depth & 0xffff));
}

static size_t bytes_of(const ek_store_db *f, const ek_store_page *p, int kind)
{
    return ek_kv_page_bytes(&f->layout, (ek_layer_kind)kind, p->depth);
}

static int find(ek_store_db *f, const ek_chain *chain, int kind, int64_t *id)
{
    sqlite3_bind_blob(f->find, 1, chain->h, sizeof chain->h, SQLITE_STATIC);
    sqlite3_bind_int(f->find, 2, kind);
    int rc = sqlite3_step(f->find);
    if (rc == SQLITE_ROW) *id = sqlite3_column_int64(f->find, 0);
    sqlite3_reset(f->find);
    return rc; /* ROW, DONE or an error */
}

static int drop(ek_store_db *f, int64_t id)
{
    sqlite3_bind_int64(f->drop, 1, id);
    int rc = ek_store_db_step(f->drop);
    if (rc) return rc;
    sqlite3_bind_int64(f->drop_data, 1, id);
    return ek_store_db_step(f->drop_data);
}

int ek_store_rows_make_room(ek_store_db *f, int64_t n)
{
    while (f->total > 0 && f->total + n > f->max_bytes) {
        int rc = sqlite3_step(f->oldest);
        int64_t id = sqlite3_column_int64(f->oldest, 0), size = sqlite3_column_int64(f->oldest, 1);
        sqlite3_reset(f->oldest);
        if (rc != SQLITE_ROW) return rc == SQLITE_DONE ? SQLITE_CORRUPT : rc; /* the sum implies that there are rows */
        rc = drop(f, id);
        if (rc) return rc;
        ek_store_db_set_total(f, f->total - size);
        atomic_fetch_add(&f->counts.evicted, 1);
    }
    return SQLITE_OK;
}

static bool is_plain(const ek_store_page *p)
{
    static const ek_content_id none[EK_PAGE_TOKENS];
    return memcmp(p->content, none, sizeof none) == 0;
}

static int add(ek_store_db *f, const ek_store_page *p, int kind)
{
    size_t n = bytes_of(f, p, kind);
    int64_t id, size = (int64_t)(n + sizeof p->token + (is_plain(p) ? 0 : sizeof p->content));
    if (size > f->max_bytes) return SQLITE_OK;
    int rc = find(f, &p->chain, kind, &id);
    if (rc == SQLITE_ROW) {
        sqlite3_bind_int64(f->touch, 1, stamp(p->depth));
        sqlite3_bind_int64(f->touch, 2, id);
        return ek_store_db_step(f->touch);
    }
    if (rc != SQLITE_DONE) return rc;
    rc = ek_store_rows_make_room(f, size);
    if (rc) return rc;
    sqlite3_bind_blob(f->add, 1, p->chain.h, sizeof p->chain.h, SQLITE_STATIC);
    sqlite3_bind_int(f->add, 2, kind);
    sqlite3_bind_int64(f->add, 3, stamp(p->depth));
    sqlite3_bind_int64(f->add, 4, size);
    rc = ek_store_db_step(f->add);
    if (rc) return rc;
    sqlite3_bind_int64(f->add_data, 1, sqlite3_last_insert_rowid(f->db));
    sqlite3_bind_int64(f->add_data, 2, (int64_t)ek_store_sum(p, kind, n));
    sqlite3_bind_blob(f->add_data, 3, p->token, sizeof p->token, SQLITE_STATIC);
    if (!is_plain(p)) sqlite3_bind_blob(f->add_data, 4, p->content, sizeof p->content, SQLITE_STATIC);
    sqlite3_bind_blob(f->add_data, 5, p->bytes[kind], (int)n, SQLITE_STATIC);
    rc = ek_store_db_step(f->add_data);
    if (rc) return rc;
    ek_store_db_set_total(f, f->total + size);
    atomic_fetch_add(&f->counts.written, 1);
    return SQLITE_OK;
}

static int forget(ek_store_db *f, const ek_chain *chain)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        int64_t id;
        int rc = find(f, chain, k, &id);
        if (rc == SQLITE_ROW) rc = drop(f, id);
        else if (rc == SQLITE_DONE) rc = SQLITE_OK;
        if (rc) return rc;
    }
    return SQLITE_OK;
}

int ek_store_rows_write(ek_store_db *f, ek_store_page *const *page, int n)
{
    int rc = ek_store_db_run(f, "BEGIN IMMEDIATE");
    for (int i = 0; i < n && !rc; i++) {
        if (!page[i]->has[EK_FULL] && !page[i]->has[EK_SLIDING]) rc = forget(f, &page[i]->chain);
        for (int k = 0; k < EK_KIND_COUNT && !rc; k++)
            if (page[i]->has[k]) rc = add(f, page[i], k);
    }
    if (!rc) rc = ek_store_db_run(f, "COMMIT");
    return rc;
}

/* Whether the row holds the page; copies its bytes. */
static bool take_data(ek_store_db *f, ek_store_page *p, int kind)
{
    sqlite3_stmt *s = f->get_data;
    size_t n = bytes_of(f, p, kind);
    bool plain = sqlite3_column_bytes(s, 2) == 0;
    if ((size_t)sqlite3_column_bytes(s, 1) != sizeof p->token || (size_t)sqlite3_column_bytes(s, 3) != n) return false;
    if (!plain && (size_t)sqlite3_column_bytes(s, 2) != sizeof p->content) return false;
    if (plain != is_plain(p) || memcmp(sqlite3_column_blob(s, 1), p->token, sizeof p->token) != 0) return false;
    if (!plain && memcmp(sqlite3_column_blob(s, 2), p->content, sizeof p->content) != 0) return false;
    memcpy(p->bytes[kind], sqlite3_column_blob(s, 3), n);
    return (uint64_t)sqlite3_column_int64(s, 0) == ek_store_sum(p, kind, n);
}

int ek_store_rows_read(ek_store_db *f, ek_store_page *p, int kind)
{
    int64_t id;
    int rc = find(f, &p->chain, kind, &id);
    if (rc != SQLITE_ROW) return rc == SQLITE_DONE ? SQLITE_OK : rc;
    sqlite3_bind_int64(f->get_data, 1, id);
    rc = sqlite3_step(f->get_data);
    bool good = rc == SQLITE_ROW && take_data(f, p, kind);
    sqlite3_reset(f->get_data);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) return rc;
    if (good) {
        p->has[kind] = true;
        atomic_fetch_add(&f->counts.read, 1);
        sqlite3_bind_int64(f->touch, 1, stamp(p->depth));
        sqlite3_bind_int64(f->touch, 2, id);
        ek_store_db_step(f->touch); /* a full disk does not stop reading */
        return SQLITE_OK;
    }
    atomic_fetch_add(&f->counts.damaged, 1);
    ek_log(EK_LOG_WARN, "cache on disk: %s: a page of positions %d to %d is damaged: dropped", f->path,
           p->depth * EK_PAGE_TOKENS, p->depth * EK_PAGE_TOKENS + EK_PAGE_TOKENS - 1);
    return drop(f, id);
}

bool ek_store_rows_holds(ek_store_db *f, const ek_store_page *p, int kind)
{
    int64_t id;
    return find(f, &p->chain, kind, &id) == SQLITE_ROW;
}
