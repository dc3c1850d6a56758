/* The store in a file of SQLite: the file before SQLite opens it, and the rows of its database. Inside src/cache. */
#ifndef EK_CACHE_STORE_SQLITE_H
#define EK_CACHE_STORE_SQLITE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "base/err.h"
#include "cache/store.h"

enum { EK_STORE_APPLICATION = 0x656b6361 }; /* SQLite's application_id: "ekca" */

/* Creates the file, or takes the one that is there, and makes it its owner's alone (0600). EIO: a symbolic link, in the
 * place of a file beside it too, or no regular file. */
ek_err ek_store_file_take(const char *path);

typedef struct ek_store_tables {
    const char *schema; /* CREATE ... IF NOT EXISTS only; meta(key) is among them */
    const char *key;    /* whose rows it holds: stays in meta */
    int page_bytes, journal_bytes;
} ek_store_tables;

/* Opens a file that was taken, for this process alone, with its tables. A code of SQLite, after which *db is still to
 * be closed. SQLITE_AUTH: another program's, which is not written to; SQLITE_MISMATCH: of another key. A store's own
 * database has its application_id, or, where that is missing or damaged, no tables but those of the schema. */
int ek_store_file_open(sqlite3 **db, const char *path, const ek_store_tables *tables);
/* Removes it with the files that SQLite has beside it. */
void ek_store_file_remove(const char *path);
/* After these codes a file is begun anew; other ones may pass. */
bool ek_store_is_damage(int rc);
/* The sentence of a file that could not be opened: EBUSY, EFORMAT, EIO. */
ek_err ek_store_file_refused(int rc, const char *path);

/* The number in the one row that sql gives. */
int ek_store_read_int64(sqlite3 *db, const char *sql, int64_t *out);

/* The rows of a store's database: pages by name and kind. All return SQLite's codes. */

typedef struct ek_store_db {
    char *path, *key;
    ek_kv_layout layout;
    int64_t max_bytes, total;
    sqlite3 *db;
    sqlite3_stmt *find, *add, *add_data, *get_data, *touch, *drop, *drop_data, *oldest;
    ek_store_counts counts;
    double last_warning;
    bool gone; /* it could not be opened again: nothing is kept */
} ek_store_db;

static inline int ek_store_db_run(ek_store_db *f, const char *sql)
{
    return sqlite3_exec(f->db, sql, NULL, NULL, NULL);
}

/* Runs a prepared statement that gives no rows, and resets it. */
static inline int ek_store_db_step(sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static inline void ek_store_db_set_total(ek_store_db *f, int64_t total)
{
    f->total = total;
    atomic_store(&f->counts.bytes, (unsigned long long)(total > 0 ? total : 0));
}

/* Writes pages, or forgets those without bytes, in one transaction, which is left open after an error. */
int ek_store_rows_write(ek_store_db *f, ek_store_page *const *page, int n);
/* Fills the bytes of a kind and sets has, if the page is there; one that is damaged is dropped. */
int ek_store_rows_read(ek_store_db *f, ek_store_page *p, int kind);
/* Whether there is a row for it, good or damaged. */
bool ek_store_rows_holds(ek_store_db *f, const ek_store_page *p, int kind);
/* Drops the oldest until n bytes more are within the limit. */
int ek_store_rows_make_room(ek_store_db *f, int64_t n);

#endif
