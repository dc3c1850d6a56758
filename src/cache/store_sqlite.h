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

/* Whether a database is a store's, or still empty: by its application_id, or where that is missing or damaged by the
 * text of all its tables. *rc: an error of SQLite. */
bool ek_store_file_is_ours(sqlite3 *db, const char *schema, int *rc);

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
