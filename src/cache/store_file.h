/* The file of a store before SQLite opens it, and whose database it is. Inside src/cache. */
#ifndef EK_CACHE_STORE_FILE_H
#define EK_CACHE_STORE_FILE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "base/err.h"

enum { EK_STORE_APPLICATION = 0x656b6361 }; /* SQLite's application_id: "ekca" */

/* Creates the file, or takes the one that is there, and makes it its owner's alone (0600). EIO: a symbolic link, in the
 * place of a file beside it too, or no regular file. */
ek_err ek_store_file_take(const char *path);

/* Whether a database is a store's, or still empty: by its application_id, or where that is missing or damaged by the
 * text of all its tables. *rc: an error of SQLite. */
bool ek_store_file_is_ours(sqlite3 *db, const char *schema, int *rc);

#endif
