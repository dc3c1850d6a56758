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

static int prepare(ek_store_db *f, sqlite3_stmt **out, const char *sql)
{
    return sqlite3_prepare_v3(f->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
}

static void close_db(ek_store_db *f)
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

static int open_db(ek_store_db *f)
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
    ek_store_db_set_total(f, total);
    return rc;
}

/* Begins anew with an empty file. */
static int begin_anew(ek_store_db *f, const char *what)
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
static void warn(ek_store_db *f, const char *what, int rc)
{
    double now = ek_now();
    if (f->last_warning > 0 && now - f->last_warning < 60) return;
    f->last_warning = now;
    ek_log(EK_LOG_WARN, "cache on disk: %s: %s: %s; %llu pages were not written so far", f->path, what,
           sqlite3_errstr(rc), (unsigned long long)atomic_load(&f->counts.failed));
}

/* Handles an error outside of writing. */
static void failed(ek_store_db *f, int rc)
{
    if (ek_store_is_damage(rc)) begin_anew(f, sqlite3_errstr(rc));
    else warn(f, "reading", rc);
}

static void write_pages(void *arg, ek_store_page *const *page, int n)
{
    ek_store_db *f = arg;
    if (f->gone) return;
    unsigned long long written = atomic_load(&f->counts.written);
    int64_t total = f->total;
    int rc = ek_store_rows_write(f, page, n);
    if (!rc) return;
    ek_store_db_run(f, "ROLLBACK");
    atomic_store(&f->counts.written, written);
    atomic_fetch_add(&f->counts.failed, (unsigned long long)n);
    ek_store_db_set_total(f, total);
    if (ek_store_is_damage(rc)) begin_anew(f, sqlite3_errstr(rc));
    else warn(f, "writing", rc);
}

static void read_page(void *arg, ek_store_page *page, const bool want[EK_KIND_COUNT])
{
    ek_store_db *f = arg;
    for (int k = 0; k < EK_KIND_COUNT && !f->gone; k++) {
        int rc = want[k] ? ek_store_rows_read(f, page, k) : SQLITE_OK;
        if (rc) failed(f, rc);
    }
}

static bool holds_page(void *arg, const ek_store_page *page, int kind)
{
    ek_store_db *f = arg;
    return !f->gone && ek_store_rows_holds(f, page, kind);
}

static void close_file(void *arg)
{
    ek_store_db *f = arg;
    close_db(f);
    free(f->path);
    free(f->key);
    free(f);
}

/* Deletes pages down to the limit, which may be lower than last time. */
static int fit(ek_store_db *f)
{
    int64_t before = f->total;
    int rc = ek_store_db_run(f, "BEGIN IMMEDIATE");
    if (!rc) rc = ek_store_rows_make_room(f, 0);
    if (!rc) rc = ek_store_db_run(f, "COMMIT");
    if (!rc && f->total < before) rc = ek_store_db_run(f, "PRAGMA incremental_vacuum");
    if (rc) ek_store_db_run(f, "ROLLBACK");
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
    ek_store_db *f = ek_alloc(sizeof *f);
    *f = (ek_store_db){.path = ek_strdup(path), .key = ek_strdup(key)};
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
