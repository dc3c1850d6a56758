#include "cache/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "cache/store_sqlite.h"

static const char schema[] = "CREATE TABLE IF NOT EXISTS meta(key TEXT NOT NULL);"
                             "CREATE TABLE IF NOT EXISTS page(id INTEGER PRIMARY KEY, chain BLOB NOT NULL, "
                             "kind INTEGER NOT NULL, used INTEGER NOT NULL, size INTEGER NOT NULL);"
                             "CREATE UNIQUE INDEX IF NOT EXISTS page_name ON page(chain, kind);"
                             "CREATE INDEX IF NOT EXISTS page_used ON page(used);"
                             "CREATE TABLE IF NOT EXISTS data(id INTEGER PRIMARY KEY, sum INTEGER NOT NULL, "
                             "token BLOB NOT NULL, content BLOB, bytes BLOB NOT NULL);";

typedef struct store_db {
    char *path, *key;
    ek_kv_layout layout;
    int64_t max_bytes, total;
    sqlite3 *db;
    sqlite3_stmt *find, *add, *add_data, *get_data, *touch, *drop, *drop_data, *oldest;
    ek_store_counts counts;
    double last_warning;
    bool gone; /* it could not be reopened; nothing is stored */
} store_db;

/* --- rows: pages by name and kind; functions return SQLite's codes --- */

static int run(store_db *f, const char *sql)
{
    return sqlite3_exec(f->db, sql, NULL, NULL, NULL);
}

static void set_total(store_db *f, int64_t total)
{
    f->total = total;
    atomic_store(&f->counts.bytes, (unsigned long long)(total > 0 ? total : 0));
}

/* Within a batch the beginning of a prompt gets a later time of use than its continuation, because a page is useless
 * without the pages before it and the oldest are deleted first. */
static int64_t stamp(int depth)
{
    return ek_unix_time() << 16 | (0xffff - (depth & 0xffff));
}

static size_t bytes_of(const store_db *f, const ek_store_page *p, int kind)
{
    return ek_kv_page_bytes(&f->layout, (ek_layer_kind)kind, p->depth);
}

static int find(store_db *f, const ek_chain *chain, int kind, int64_t *id)
{
    sqlite3_bind_blob(f->find, 1, chain->h, sizeof chain->h, SQLITE_STATIC);
    sqlite3_bind_int(f->find, 2, kind);
    int rc = sqlite3_step(f->find);
    if (rc == SQLITE_ROW) *id = sqlite3_column_int64(f->find, 0);
    sqlite3_reset(f->find);
    return rc; /* ROW, DONE or an error */
}

static int drop(store_db *f, int64_t id)
{
    sqlite3_bind_int64(f->drop, 1, id);
    int rc = ek_store_step(f->drop);
    if (rc) return rc;
    sqlite3_bind_int64(f->drop_data, 1, id);
    return ek_store_step(f->drop_data);
}

/* Deletes the oldest rows until n more bytes fit the limit. */
static int make_room(store_db *f, int64_t n)
{
    while (f->total > 0 && f->total + n > f->max_bytes) {
        int rc = sqlite3_step(f->oldest);
        int64_t id = sqlite3_column_int64(f->oldest, 0), size = sqlite3_column_int64(f->oldest, 1);
        sqlite3_reset(f->oldest);
        if (rc != SQLITE_ROW) return rc == SQLITE_DONE ? SQLITE_CORRUPT : rc; /* the sum implies that there are rows */
        rc = drop(f, id);
        if (rc) return rc;
        set_total(f, f->total - size);
        atomic_fetch_add(&f->counts.evicted, 1);
    }
    return SQLITE_OK;
}

static bool is_plain(const ek_store_page *p)
{
    static const ek_content_id none[EK_PAGE_TOKENS];
    return memcmp(p->content, none, sizeof none) == 0;
}

static int add(store_db *f, const ek_store_page *p, int kind)
{
    size_t n = bytes_of(f, p, kind);
    int64_t id, size = (int64_t)(n + sizeof p->token + (is_plain(p) ? 0 : sizeof p->content));
    if (size > f->max_bytes) return SQLITE_OK;
    int rc = find(f, &p->chain, kind, &id);
    if (rc == SQLITE_ROW) {
        sqlite3_bind_int64(f->touch, 1, stamp(p->depth));
        sqlite3_bind_int64(f->touch, 2, id);
        return ek_store_step(f->touch);
    }
    if (rc != SQLITE_DONE) return rc;
    rc = make_room(f, size);
    if (rc) return rc;
    sqlite3_bind_blob(f->add, 1, p->chain.h, sizeof p->chain.h, SQLITE_STATIC);
    sqlite3_bind_int(f->add, 2, kind);
    sqlite3_bind_int64(f->add, 3, stamp(p->depth));
    sqlite3_bind_int64(f->add, 4, size);
    rc = ek_store_step(f->add);
    if (rc) return rc;
    sqlite3_bind_int64(f->add_data, 1, sqlite3_last_insert_rowid(f->db));
    sqlite3_bind_int64(f->add_data, 2, (int64_t)ek_store_sum(p, kind, n));
    sqlite3_bind_blob(f->add_data, 3, p->token, sizeof p->token, SQLITE_STATIC);
    if (!is_plain(p)) sqlite3_bind_blob(f->add_data, 4, p->content, sizeof p->content, SQLITE_STATIC);
    sqlite3_bind_blob(f->add_data, 5, p->bytes[kind], (int)n, SQLITE_STATIC);
    rc = ek_store_step(f->add_data);
    if (rc) return rc;
    set_total(f, f->total + size);
    atomic_fetch_add(&f->counts.written, 1);
    return SQLITE_OK;
}

static int forget(store_db *f, const ek_chain *chain)
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

/* Writes pages, or deletes those without bytes, in one transaction, which stays open after an error. */
static int write_rows(store_db *f, ek_store_page *const *page, int n)
{
    int rc = run(f, "BEGIN IMMEDIATE");
    for (int i = 0; i < n && !rc; i++) {
        if (!page[i]->has[EK_FULL] && !page[i]->has[EK_SLIDING]) rc = forget(f, &page[i]->chain);
        for (int k = 0; k < EK_KIND_COUNT && !rc; k++)
            if (page[i]->has[k]) rc = add(f, page[i], k);
    }
    if (!rc) rc = run(f, "COMMIT");
    return rc;
}

/* Whether the row holds the page; copies its bytes. */
static bool take_data(store_db *f, ek_store_page *p, int kind)
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

/* Reads the bytes of a kind and sets has if the page exists; a damaged one is deleted. */
static int read_row(store_db *f, ek_store_page *p, int kind)
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
        ek_store_step(f->touch); /* a full disk does not stop reading */
        return SQLITE_OK;
    }
    atomic_fetch_add(&f->counts.damaged, 1);
    ek_log(EK_LOG_WARN, "cache on disk: %s: a page of positions %d to %d is damaged: dropped", f->path,
           p->depth * EK_PAGE_TOKENS, p->depth * EK_PAGE_TOKENS + EK_PAGE_TOKENS - 1);
    return drop(f, id);
}

/* Whether a row exists, good or damaged. */
static bool holds_row(store_db *f, const ek_store_page *p, int kind)
{
    int64_t id;
    return find(f, &p->chain, kind, &id) == SQLITE_ROW;
}

/* --- the database --- */

static int prepare(store_db *f, sqlite3_stmt **out, const char *sql)
{
    return sqlite3_prepare_v3(f->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
}

static void close_db(store_db *f)
{
    sqlite3_stmt **all[] = {&f->find,  &f->add,  &f->add_data,  &f->get_data,
                            &f->touch, &f->drop, &f->drop_data, &f->oldest};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sqlite3_finalize(*all[i]);
        *all[i] = NULL;
    }
    sqlite3_close(f->db);
    f->db = NULL;
}

static int open_db(store_db *f)
{
    if (ek_store_file_take(f->path)) return SQLITE_CANTOPEN;
    const ek_store_tables tables = {.schema = schema, .key = f->key, .page_bytes = 32768, .journal_bytes = 32 << 20};
    int rc = ek_store_file_open(&f->db, f->path, &tables);
    int64_t total = 0;
    if (!rc) rc = ek_store_read_int64(f->db, "SELECT coalesce(sum(size), 0) FROM page", &total);
    if (!rc) rc = prepare(f, &f->find, "SELECT id FROM page WHERE chain=? AND kind=?");
    if (!rc) rc = prepare(f, &f->add, "INSERT INTO page(chain, kind, used, size) VALUES(?, ?, ?, ?)");
    if (!rc) rc = prepare(f, &f->add_data, "INSERT INTO data(id, sum, token, content, bytes) VALUES(?, ?, ?, ?, ?)");
    if (!rc) rc = prepare(f, &f->get_data, "SELECT sum, token, content, bytes FROM data WHERE id=?");
    if (!rc) rc = prepare(f, &f->touch, "UPDATE page SET used=? WHERE id=?");
    if (!rc) rc = prepare(f, &f->drop, "DELETE FROM page WHERE id=?");
    if (!rc) rc = prepare(f, &f->drop_data, "DELETE FROM data WHERE id=?");
    if (!rc) rc = prepare(f, &f->oldest, "SELECT id, size FROM page ORDER BY used LIMIT 1");
    set_total(f, total);
    return rc;
}

/* Begins anew with an empty file. */
static int begin_anew(store_db *f, const char *what)
{
    ek_log(EK_LOG_WARN, "cache on disk: %s is damaged (%s): dropped, with all it held (%.1f MiB)", f->path, what,
           (double)f->total / 1048576);
    atomic_fetch_add(&f->counts.damaged, 1);
    close_db(f);
    ek_store_file_remove(f->path);
    int rc = open_db(f);
    if (rc) {
        ek_log(EK_LOG_ERROR, "cache on disk: %s: %s: nothing is kept on disk any more", f->path, sqlite3_errstr(rc));
        close_db(f);
        f->gone = true;
    }
    return rc;
}

/* At most one line per minute. */
static void warn(store_db *f, const char *what, int rc)
{
    double now = ek_now();
    if (f->last_warning > 0 && now - f->last_warning < 60) return;
    f->last_warning = now;
    ek_log(EK_LOG_WARN, "cache on disk: %s: %s: %s; %llu pages were not written so far", f->path, what,
           sqlite3_errstr(rc), (unsigned long long)atomic_load(&f->counts.failed));
}

/* Handles an error outside of writing. */
static void failed(store_db *f, int rc)
{
    if (ek_store_is_damage(rc)) begin_anew(f, sqlite3_errstr(rc));
    else warn(f, "reading", rc);
}

static void write_pages(void *arg, ek_store_page *const *page, int n)
{
    store_db *f = arg;
    if (f->gone) return;
    unsigned long long written = atomic_load(&f->counts.written);
    int64_t total = f->total;
    int rc = write_rows(f, page, n);
    if (!rc) return;
    run(f, "ROLLBACK");
    atomic_store(&f->counts.written, written);
    atomic_fetch_add(&f->counts.failed, (unsigned long long)n);
    set_total(f, total);
    if (ek_store_is_damage(rc)) begin_anew(f, sqlite3_errstr(rc));
    else warn(f, "writing", rc);
}

static void read_page(void *arg, ek_store_page *page, const bool want[EK_KIND_COUNT])
{
    store_db *f = arg;
    for (int k = 0; k < EK_KIND_COUNT && !f->gone; k++) {
        int rc = want[k] ? read_row(f, page, k) : SQLITE_OK;
        if (rc) failed(f, rc);
    }
}

static bool holds_page(void *arg, const ek_store_page *page, int kind)
{
    store_db *f = arg;
    return !f->gone && holds_row(f, page, kind);
}

static void close_file(void *arg)
{
    store_db *f = arg;
    close_db(f);
    free(f->path);
    free(f->key);
    free(f);
}

/* Deletes pages down to the limit, which may be lower than last time. */
static int fit(store_db *f)
{
    int64_t before = f->total;
    int rc = run(f, "BEGIN IMMEDIATE");
    if (!rc) rc = make_room(f, 0);
    if (!rc) rc = run(f, "COMMIT");
    if (!rc && f->total < before) rc = run(f, "PRAGMA incremental_vacuum");
    if (rc) run(f, "ROLLBACK");
    return rc;
}

ek_err ek_store_sqlite_open(ek_store_backend *out, const char *dir, const char *key, double max_bytes,
                            const ek_kv_layout *layout)
{
    char hash[65], path[3072];
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) return ek_fail(EK_EIO, "%s: %s", dir, strerror(errno));
    ek_sha256_hex(hash, key, strlen(key));
    if (snprintf(path, sizeof path, "%s/%.16s.sqlite", dir, hash) >= (int)sizeof path)
        return ek_fail(EK_EINVAL, "the path %.64s… is too long", dir);
    store_db *f = ek_alloc(sizeof *f);
    *f = (store_db){.path = ek_strdup(path), .key = ek_strdup(key)};
    f->max_bytes = max_bytes < 9e18 ? (int64_t)max_bytes : INT64_MAX;
    f->layout = *layout;
    int rc = open_db(f);
    if (!rc) rc = fit(f);
    if (ek_store_is_damage(rc)) rc = begin_anew(f, sqlite3_errstr(rc));
    if ((rc & 0xff) == SQLITE_FULL || (rc & 0xff) == SQLITE_IOERR) { /* a full disk does not stop the server */
        ek_log(EK_LOG_ERROR, "cache on disk: %s: %s: nothing is kept on disk", path, sqlite3_errstr(rc));
        close_db(f);
        f->gone = true;
        rc = 0;
    }
    if (rc) {
        ek_err err = ek_store_file_refused(rc, path);
        close_file(f);
        return err;
    }
    if (!f->gone)
        ek_log(EK_LOG_DEBUG, "cache on disk: %s holds %.1f of %.1f MiB", path, (double)f->total / 1048576,
               (double)f->max_bytes / 1048576);
    *out = (ek_store_backend){.arg = f,
                              .write = write_pages,
                              .read = read_page,
                              .holds = holds_page,
                              .close = close_file,
                              .counts = &f->counts};
    return EK_OK;
}
