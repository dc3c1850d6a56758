#include "replies/backends.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
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
                             "CREATE TABLE IF NOT EXISTS reply(key BLOB PRIMARY KEY, owner INTEGER NOT NULL, "
                             "used INTEGER NOT NULL, since REAL NOT NULL, size INTEGER NOT NULL, record BLOB NOT NULL);"
                             "CREATE INDEX IF NOT EXISTS reply_used ON reply(owner, used);";

enum { PATH_ROOM = 4096 };

typedef struct disk {
    pthread_mutex_t lock; /* guards all members below, because lookups come from several threads */
    char *path, *identity;
    int n_vocab;
    double max_bytes, max_age, last_warning;
    uint64_t damaged;
    int64_t total, uses; /* uses: grows with every use */
    bool read_only, gone;
    sqlite3 *db;
    sqlite3_stmt *find, *add, *touch, *drop;
} disk;

static int run(disk *d, const char *sql)
{
    return sqlite3_exec(d->db, sql, NULL, NULL, NULL);
}

static int read_total(disk *d)
{
    return ek_store_read_int64(d->db, "SELECT coalesce(sum(size), 0) FROM reply", &d->total);
}

static int prepare(disk *d, sqlite3_stmt **out, const char *sql)
{
    return sqlite3_prepare_v3(d->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
}

/* --- the file --- */

static void close_db(disk *d)
{
    sqlite3_stmt **all[] = {&d->find, &d->add, &d->touch, &d->drop};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sqlite3_finalize(*all[i]);
        *all[i] = NULL;
    }
    sqlite3_close(d->db);
    d->db = NULL;
}

static int open_db(disk *d)
{
    const ek_store_tables tables = {.schema = schema, .key = d->identity, .page_bytes = 4096, .journal_bytes = 8 << 20};
    if (!d->read_only && ek_store_file_take(d->path)) return SQLITE_CANTOPEN;
    int rc = ek_store_file_open(&d->db, d->path, &tables);
    if (!rc) rc = read_total(d);
    if (!rc) rc = ek_store_read_int64(d->db, "SELECT coalesce(max(used), 0) FROM reply", &d->uses);
    if (!rc) rc = prepare(d, &d->find, "SELECT record, since FROM reply WHERE key=?");
    if (!rc)
        rc = prepare(d, &d->add,
                     "INSERT OR REPLACE INTO reply(key, owner, used, since, size, record) VALUES(?, ?, ?, ?, ?, ?)");
    if (!rc) rc = prepare(d, &d->touch, "UPDATE reply SET used=? WHERE key=?");
    if (!rc) rc = prepare(d, &d->drop, "DELETE FROM reply WHERE key=?");
    return rc;
}

static void give_up(disk *d, int rc)
{
    ek_log(EK_LOG_ERROR, "stored replies: %s: %s: none are kept on disk any more", d->path, sqlite3_errstr(rc));
    close_db(d);
    d->gone = true;
}

static int begin_anew(disk *d, const char *what)
{
    ek_log(EK_LOG_WARN, "stored replies: %s is dropped, with all it held (%.1f MiB): %s", d->path,
           (double)d->total / 1048576, what);
    close_db(d);
    ek_store_file_remove(d->path);
    const int rc = open_db(d);
    if (rc) give_up(d, rc);
    return rc;
}

/* Logs at most one line a minute. */
static void failed(disk *d, const char *doing, int rc)
{
    const double now = ek_now();
    if (ek_store_is_damage(rc)) {
        d->damaged++;
        begin_anew(d, sqlite3_errstr(rc));
        return;
    }
    if (d->last_warning > 0 && now - d->last_warning < 60) return;
    d->last_warning = now;
    ek_log(EK_LOG_WARN, "stored replies: %s: %s: %s", d->path, doing, sqlite3_errstr(rc));
}

/* --- records --- */

static int drop(disk *d, const ek_reply_key *k)
{
    sqlite3_bind_blob(d->drop, 1, k->h, sizeof k->h, SQLITE_STATIC);
    int rc = ek_store_step(d->drop);
    if (!rc) rc = read_total(d);
    return rc;
}

/* Drops a record with another sum, key or vocabulary. */
static int take_row(disk *d, const ek_reply_key *k, ek_reply_record **out)
{
    const void *bytes = sqlite3_column_blob(d->find, 0);
    const int n = sqlite3_column_bytes(d->find, 0);
    const double since = sqlite3_column_double(d->find, 1);
    const bool old = d->max_age > 0 && ek_unix_now() - since > d->max_age;
    const ek_err err = bytes ? ek_reply_record_read(out, k, EK_REPLY_DISK, d->n_vocab, bytes, (size_t)n) : EK_EFORMAT;
    sqlite3_reset(d->find);
    if (!err && !old) return SQLITE_OK;
    if (!err) ek_reply_record_release(*out);
    *out = NULL;
    if (err) {
        d->damaged++;
        ek_log(EK_LOG_WARN, "stored replies: %s: a damaged one is dropped: %s", d->path, ek_err_text());
    }
    return drop(d, k);
}

static ek_reply_record *find(void *arg, const ek_reply_key *k, const ek_reply_key *content, uint64_t owner)
{
    disk *d = arg;
    ek_reply_record *r = NULL;
    (void)content, (void)owner;
    pthread_mutex_lock(&d->lock);
    int rc = SQLITE_DONE;
    if (!d->gone) {
        sqlite3_bind_blob(d->find, 1, k->h, sizeof k->h, SQLITE_STATIC);
        rc = sqlite3_step(d->find);
        if (rc == SQLITE_ROW) rc = take_row(d, k, &r);
        else sqlite3_reset(d->find);
    }
    if (r) {
        sqlite3_bind_int64(d->touch, 1, ++d->uses);
        sqlite3_bind_blob(d->touch, 2, k->h, sizeof k->h, SQLITE_STATIC);
        rc = ek_store_step(d->touch);
    }
    if (rc != SQLITE_OK && rc != SQLITE_DONE) failed(d, "reading", rc);
    pthread_mutex_unlock(&d->lock);
    return r;
}

/* Removes the least recently used records of the owner with the most bytes. */
static int make_room(disk *d, double bytes)
{
    static const char victims[] = "DELETE FROM reply WHERE rowid IN (SELECT rowid FROM reply WHERE owner="
                                  "(SELECT owner FROM reply GROUP BY owner ORDER BY sum(size) DESC LIMIT 1) "
                                  "ORDER BY used LIMIT max(1, (SELECT count(*) FROM reply) / 32))";
    int rc = SQLITE_OK;
    while (!rc && d->total > 0 && (double)d->total + bytes > d->max_bytes) {
        rc = run(d, victims);
        if (!rc) rc = read_total(d);
    }
    return rc;
}

static int write_one(disk *d, const ek_reply_record *r, uint64_t owner)
{
    const ek_reply_key *k = ek_reply_record_key(r);
    size_t n;
    const void *bytes = ek_reply_record_bytes(r, &n);
    if ((double)n > d->max_bytes) return SQLITE_OK;
    int rc = make_room(d, (double)n);
    if (rc) return rc;
    sqlite3_bind_blob(d->add, 1, k->h, sizeof k->h, SQLITE_STATIC);
    sqlite3_bind_int64(d->add, 2, (sqlite3_int64)owner);
    sqlite3_bind_int64(d->add, 3, ++d->uses);
    sqlite3_bind_double(d->add, 4, ek_unix_now());
    sqlite3_bind_int64(d->add, 5, (sqlite3_int64)n);
    sqlite3_bind_blob64(d->add, 6, bytes, n, SQLITE_STATIC);
    rc = ek_store_step(d->add);
    if (!rc) d->total += (int64_t)n; /* a replaced record stays counted until the sum is computed again */
    return rc;
}

static ek_err write_all(void *arg, ek_reply_record *const *r, const uint64_t *owner, int n)
{
    disk *d = arg;
    ek_err err = EK_OK;
    pthread_mutex_lock(&d->lock);
    int rc = d->gone ? SQLITE_OK : run(d, "BEGIN IMMEDIATE");
    for (int i = 0; i < n && !rc && !d->gone; i++) rc = write_one(d, r[i], owner[i]);
    if (!rc && !d->gone) rc = run(d, "COMMIT");
    if (rc) {
        run(d, "ROLLBACK");
        read_total(d);
        failed(d, "writing", rc);
        err = ek_fail(EK_EIO, "%s: %s", d->path, sqlite3_errstr(rc));
    } else if (d->gone) {
        err = ek_fail(EK_EIO, "%s cannot be written", d->path);
    }
    pthread_mutex_unlock(&d->lock);
    return err;
}

static void forget(void *arg, const ek_reply_key *k)
{
    disk *d = arg;
    pthread_mutex_lock(&d->lock);
    const int rc = d->gone ? SQLITE_OK : drop(d, k);
    if (rc) failed(d, "dropping", rc);
    pthread_mutex_unlock(&d->lock);
}

static void distrust(void *arg)
{
    disk *d = arg;
    pthread_mutex_lock(&d->lock);
    if (!d->gone) begin_anew(d, "it held a wrong reply");
    pthread_mutex_unlock(&d->lock);
}

static uint64_t count_damaged(void *arg)
{
    disk *d = arg;
    pthread_mutex_lock(&d->lock);
    const uint64_t n = d->damaged;
    pthread_mutex_unlock(&d->lock);
    return n;
}

static void close_disk(void *arg)
{
    disk *d = arg;
    close_db(d);
    pthread_mutex_destroy(&d->lock);
    free(d->path);
    free(d->identity);
    free(d);
}

/* --- open --- */

static ek_err make_path(char *path, const ek_reply_disk_opts *o)
{
    char hash[65];
    struct stat st;
    if (!o->read_only && mkdir(o->dir, 0700) != 0 && errno != EEXIST)
        return ek_fail(EK_EIO, "%s: %s", o->dir, strerror(errno));
    ek_sha256_hex(hash, o->identity, strlen(o->identity));
    if (snprintf(path, PATH_ROOM - 16, "%s/%.16s-replies.sqlite", o->dir, hash) >= PATH_ROOM - 16)
        return ek_fail(EK_EINVAL, "the path %.64s… is too long", o->dir);
    if (o->read_only && stat(path, &st)) return ek_fail(EK_ENOTFOUND, "%s: %s", path, strerror(errno));
    return EK_OK;
}

ek_err ek_reply_disk_open(ek_reply_backend *out, const ek_reply_disk_opts *o)
{
    char path[PATH_ROOM];
    EK_TRY(make_path(path, o));
    disk *d = ek_alloc(sizeof *d);
    *d = (disk){.path = ek_strdup(path),
                .identity = ek_strdup(o->identity),
                .n_vocab = o->n_vocab,
                .max_bytes = o->max_bytes,
                .max_age = o->max_age,
                .read_only = o->read_only};
    pthread_mutex_init(&d->lock, NULL);
    int rc = open_db(d);
    if (!rc && !o->read_only) rc = make_room(d, 0);
    if (ek_store_is_damage(rc) && !o->read_only) {
        d->damaged++;
        rc = begin_anew(d, sqlite3_errstr(rc));
    }
    if ((rc & 0xff) == SQLITE_FULL || (rc & 0xff) == SQLITE_IOERR) { /* with a full disk the server still works */
        if (!d->gone) give_up(d, rc);
        rc = 0;
    }
    if (rc) {
        const ek_err err = ek_store_file_refused(rc, path);
        close_disk(d);
        return err;
    }
    *out = (ek_reply_backend){.origin = EK_REPLY_DISK,
                              .arg = d,
                              .find = find,
                              .write = write_all,
                              .forget = forget,
                              .distrust = distrust,
                              .damaged = count_damaged,
                              .close = close_disk};
    return EK_OK;
}

/* NULL: the file is no store. EBUSY: a server has it. */
static ek_err read_identity(char **out, const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    *out = NULL;
    int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
    if (!rc) rc = sqlite3_prepare_v2(db, "SELECT key FROM meta", -1, &s, NULL);
    if (!rc) rc = sqlite3_step(s);
    const bool busy = (rc & 0xff) == SQLITE_BUSY;
    if (rc == SQLITE_ROW && sqlite3_column_text(s, 0)) *out = ek_strdup((const char *)sqlite3_column_text(s, 0));
    else if (!busy) ek_log(EK_LOG_WARN, "%s is passed over: %s", path, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
    sqlite3_finalize(s);
    sqlite3_close(db);
    return busy ? ek_store_file_refused(rc, path) : EK_OK;
}

static int is_store(const struct dirent *e)
{
    static const char end[] = "-replies.sqlite";
    const size_t n = strlen(e->d_name);
    return n >= sizeof end && !strcmp(e->d_name + n - sizeof end + 1, end);
}

ek_err ek_reply_disk_list(const char *dir, ek_err (*fn)(void *arg, const char *identity), void *arg)
{
    struct dirent **name;
    const int n = scandir(dir, &name, is_store, alphasort);
    ek_err err = n == 0 ? ek_fail(EK_ENOTFOUND, "%s: no replies are stored there", dir) : EK_OK;
    if (n < 0) return ek_fail(errno == ENOENT ? EK_ENOTFOUND : EK_EIO, "%s: %s", dir, strerror(errno));
    for (int i = 0; i < n; i++) {
        ek_buf path = {0};
        ek_buf_fmt(&path, "%s/%s", dir, name[i]->d_name);
        char *identity = NULL;
        if (!err) err = read_identity(&identity, ek_buf_text(&path));
        if (identity) err = fn(arg, identity);
        free(identity);
        ek_buf_fini(&path);
        free(name[i]);
    }
    free(name);
    return err;
}

ek_err ek_reply_disk_each(const ek_reply_backend *b, double since, bool (*fn)(void *arg, ek_reply_record *r), void *arg)
{
    disk *d = b->arg;
    sqlite3_stmt *s;
    int rc = sqlite3_prepare_v2(d->db, "SELECT record FROM reply WHERE since>=? ORDER BY key", -1, &s, NULL);
    if (rc) return ek_fail(EK_EIO, "%s: %s", d->path, sqlite3_errstr(rc));
    sqlite3_bind_double(s, 1, since);
    bool more = true;
    while (more && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        ek_reply_record *r;
        const void *bytes = sqlite3_column_blob(s, 0);
        if (bytes &&
            !ek_reply_record_read(&r, NULL, EK_REPLY_DISK, d->n_vocab, bytes, (size_t)sqlite3_column_bytes(s, 0))) {
            more = fn(arg, r);
            ek_reply_record_release(r);
        } else {
            d->damaged++;
        }
    }
    sqlite3_finalize(s);
    return more && rc != SQLITE_DONE ? ek_fail(EK_EIO, "%s: %s", d->path, sqlite3_errstr(rc)) : EK_OK;
}
