/* The store in a file of SQLite: the file before SQLite opens it, and the rows of its database. Inside src/cache. */
#ifndef EK_CACHE_STORE_SQLITE_H
#define EK_CACHE_STORE_SQLITE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "base/err.h"
#include "cache/store.h"

enum { EK_STORE_APPLICATION = 0x656b6361 }; /* SQLite's application_id: "ekca" */

/* Creates the file or takes the existing one, and makes it accessible to its owner only (0600). EIO for a symbolic
 * link, also in place of a file beside it, and for a file that is not regular. */
ek_err ek_store_file_take(const char *path);

typedef struct ek_store_tables {
    const char *schema; /* CREATE ... IF NOT EXISTS only; includes meta(key) */
    const char *key;    /* the key of its rows, stored in meta */
    int page_bytes, journal_bytes;
} ek_store_tables;

/* Opens a taken file with its tables, for this process alone. Returns SQLite's code; after an error *db still has to be
 * closed. SQLITE_AUTH: another program's file, which is not written; SQLITE_MISMATCH: another key's. A store's own
 * database has its application_id; if that is missing or damaged, it has only tables of the schema. */
int ek_store_file_open(sqlite3 **db, const char *path, const ek_store_tables *tables);
/* Removes the file with SQLite's files beside it. */
void ek_store_file_remove(const char *path);
/* Whether a file has to be recreated after this code; other errors may be temporary. */
bool ek_store_is_damage(int rc);
/* The sentence for a file that could not be opened: EBUSY, EFORMAT, EIO. */
ek_err ek_store_file_refused(int rc, const char *path);

/* Reads a number from the single row of sql. */
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
    bool gone; /* it could not be reopened; nothing is stored */
} ek_store_db;

static inline int ek_store_db_run(ek_store_db *f, const char *sql)
{
    return sqlite3_exec(f->db, sql, NULL, NULL, NULL);
}

/* Runs a prepared statement without rows, and resets it. */
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

/* Writes pages, or deletes those without bytes, in one transaction, which stays open after an error. */
int ek_store_rows_write(ek_store_db *f, ek_store_page *const *page, int n);
/* Reads the bytes of a kind and sets has if the page exists; a damaged one is deleted. */
int ek_store_rows_read(ek_store_db *f, ek_store_page *p, int kind);
/* Whether a row exists, good or damaged. */
bool ek_store_rows_holds(ek_store_db *f, const ek_store_page *p, int kind);
/* Deletes the oldest rows until n more bytes fit the limit. */
int ek_store_rows_make_room(ek_store_db *f, int64_t n);

#endif
