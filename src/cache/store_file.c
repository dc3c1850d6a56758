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

static int read_number(sqlite3 *db, const char *sql, long long *out)
{
    sqlite3_stmt *s;
    int rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);
    if (rc) return rc;
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) *out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* SQLite keeps the text of CREATE without IF NOT EXISTS. */
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

bool ek_store_file_is_ours(sqlite3 *db, const char *schema, int *rc)
{
    long long id = 0;
    sqlite3_stmt *s;
    *rc = read_number(db, "PRAGMA application_id", &id);
    if (*rc || id == EK_STORE_APPLICATION) return *rc == 0;
    *rc = sqlite3_prepare_v2(db, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL", -1, &s, NULL);
    if (*rc) return false;
    bool ours = true;
    int step, n = 0;
    for (; (step = sqlite3_step(s)) == SQLITE_ROW; n++) {
        const char *sql = (const char *)sqlite3_column_text(s, 0);
        ours = ours && sql && stands_in(schema, sql);
    }
    ours = ours && (n > 0 || id == 0); /* its tables, under a damaged mark too, or nothing at all */
    sqlite3_finalize(s);
    if (step != SQLITE_DONE) *rc = step;
    return ours && *rc == 0;
}
