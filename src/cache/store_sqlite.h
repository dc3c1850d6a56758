/* A file of SQLite before and while it is opened, and its statements: for the store and for stored replies. */
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

/* Runs a prepared statement without rows, and resets it. */
static inline int ek_store_step(sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

#endif
