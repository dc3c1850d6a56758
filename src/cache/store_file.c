#include "cache/store_sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* SQLite follows links beside its file, and writes there. */
static ek_err check_beside(const char *path)
{
    static const char *const tail[] = {"-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++) {
        char beside[4096];
        struct stat st;
        snprintf(beside, sizeof beside, "%s%s", path, tail[i]);
        if (!lstat(beside, &st) && !S_ISREG(st.st_mode))
            return ek_fail(EK_EIO, "%s is %s, it must be a file", beside, S_ISLNK(st.st_mode) ? "a link" : "no file");
    }
    return EK_OK;
}

ek_err ek_store_file_take(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ELOOP)
        return ek_fail(EK_EIO, "%s is a link, which is not followed; it must be a file", path);
    if (fd < 0) return ek_fail(EK_EIO, "%s: %s", path, strerror(errno));
    ek_err err = EK_OK;
    if (fstat(fd, &st)) err = ek_fail(EK_EIO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode)) err = ek_fail(EK_EIO, "%s is no file", path);
    else if ((st.st_mode & 0077) && st.st_uid == geteuid() && fchmod(fd, 0600)) /* earlier versions: 0644 */
        err = ek_fail(EK_EIO, "%s: %s", path, strerror(errno));
    close(fd);
    return err ? err : check_beside(path);
}

int ek_store_read_int64(sqlite3 *db, const char *sql, int64_t *out)
{
    sqlite3_stmt *s;
    int rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);
    if (rc) return rc;
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) *out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* SQLite stores the text of CREATE without IF NOT EXISTS. */
static bool stands_in(const char *schema, const char *sql)
{
    static const char skipped[] = "IF NOT EXISTS ";
    const char *name = strchr(sql, ' ');
    for (const char *at = schema; name && (at = strstr(at, skipped)); at += sizeof skipped - 1) {
        const char *head = at;
        while (head > schema && head[-1] != ';') head--;
        const size_t n = (size_t)(at - head), rest = strlen(sql) > n ? strlen(sql) - n : 0;
        const char *text = at + sizeof skipped - 1;
        if (rest && strncmp(head, sql, n) == 0 && strncmp(text, sql + n, rest) == 0 && text[rest] == ';') return true;
    }
    return false;
}

static bool is_ours(sqlite3 *db, const char *schema, int *rc)
{
    int64_t id = 0;
    sqlite3_stmt *s;
    *rc = ek_store_read_int64(db, "PRAGMA application_id", &id);
    if (*rc || id == EK_STORE_APPLICATION) return *rc == 0;
    *rc = sqlite3_prepare_v2(db, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL", -1, &s, NULL);
    if (*rc) return false;
    bool ours = true;
    int step, n = 0;
    for (; (step = sqlite3_step(s)) == SQLITE_ROW; n++) {
        const char *sql = (const char *)sqlite3_column_text(s, 0);
        ours = ours && sql && stands_in(schema, sql);
    }
    ours = ours && (n > 0 || id == 0); /* either its tables, even under a damaged mark, or nothing at all */
    sqlite3_finalize(s);
    if (step != SQLITE_DONE) *rc = step;
    return ours && *rc == 0;
}

static int run(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

/* Compares the key in the file, or writes it into a new one; SQLITE_MISMATCH: it differs. */
static int check_key(sqlite3 *db, const char *want)
{
    sqlite3_stmt *s;
    int rc = sqlite3_prepare_v2(db, "SELECT key FROM meta", -1, &s, NULL);
    if (rc) return rc;
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) {
        const char *key = (const char *)sqlite3_column_text(s, 0);
        rc = key && strcmp(key, want) == 0 ? SQLITE_OK : SQLITE_MISMATCH;
    }
    sqlite3_finalize(s);
    if (rc != SQLITE_DONE) return rc;
    rc = sqlite3_prepare_v2(db, "INSERT INTO meta(key) VALUES(?)", -1, &s, NULL);
    if (rc) return rc;
    sqlite3_bind_text(s, 1, want, -1, SQLITE_STATIC);
    rc = ek_store_step(s);
    sqlite3_finalize(s);
    return rc;
}

int ek_store_file_open(sqlite3 **db, const char *path, const ek_store_tables *tables)
{
    char set[200];
    int rc = sqlite3_open_v2(path, db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc) return rc;
    sqlite3_db_config(*db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    /* Exclusive before WAL: its index is then in memory and no file is mapped, so a file that shrinks gives an error
     * code, not a signal. */
    snprintf(set, sizeof set,
             "PRAGMA locking_mode=EXCLUSIVE; PRAGMA mmap_size=0; PRAGMA cell_size_check=ON;"
             "PRAGMA trusted_schema=OFF; PRAGMA page_size=%d; PRAGMA auto_vacuum=INCREMENTAL;",
             tables->page_bytes);
    rc = run(*db, set);
    if (!rc && !is_ours(*db, tables->schema, &rc)) return rc ? rc : SQLITE_AUTH;
    snprintf(set, sizeof set, "PRAGMA application_id=%d;", EK_STORE_APPLICATION);
    if (!rc) rc = run(*db, set);
    if (!rc) rc = run(*db, "PRAGMA journal_mode=WAL;");
    snprintf(set, sizeof set, "PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=%d; BEGIN IMMEDIATE;",
             tables->journal_bytes);
    if (!rc) rc = run(*db, set);
    if (!rc) rc = run(*db, tables->schema);
    if (!rc) rc = check_key(*db, tables->key);
    if (!rc) rc = run(*db, "COMMIT");
    return rc;
}

void ek_store_file_remove(const char *path)
{
    static const char *const tail[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s%s", path, tail[i]);
        unlink(name);
    }
}

bool ek_store_is_damage(int rc)
{
    const int primary = rc & 0xff;
    return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_MISMATCH ||
           primary == SQLITE_ERROR || primary == SQLITE_CONSTRAINT || primary == SQLITE_FORMAT ||
           primary == SQLITE_SCHEMA;
}

ek_err ek_store_file_refused(int rc, const char *path)
{
    switch (rc & 0xff) {
    case SQLITE_BUSY: return ek_fail(EK_EBUSY, "%s is in use by another process", path);
    case SQLITE_AUTH: return ek_fail(EK_EFORMAT, "%s is the database of another program, which is left as it is", path);
    case SQLITE_CANTOPEN: {
        ek_err err = ek_store_file_take(path); /* finds the fault in the file */
        if (err) return err;
    }
    /* fall through */
    default: return ek_fail(EK_EIO, "%s: %s", path, sqlite3_errstr(rc));
    }
}
