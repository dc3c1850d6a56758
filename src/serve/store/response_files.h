/* Keeps the store of responses in a folder, one file per response, so that responses survive a restart. A thread writes
 * each change at once and deletes the files of forgotten responses. It writes a temporary file and renames it, so a
 * killed process leaves either the old file or the new one. Inside src/serve. */
#ifndef EK_SERVE_RESPONSE_FILES_H
#define EK_SERVE_RESPONSE_FILES_H

#include "serve/store/response_state.h"

typedef struct ek_response_files ek_response_files;

/* --- under the lock of the store --- */

/* e is in the store from now on; its file is missing or out of date. */
void ek_response_files_put(ek_response_files *f, ek_response_entry *e);
/* e is no longer in the store. by: its replacement, which is put next; NULL: there is none. */
void ek_response_files_forget(ek_response_files *f, ek_response_entry *e, ek_response_entry *by);

/* --- without it --- */

/* Writes all pending changes. The entries stay. */
void ek_response_files_close(ek_response_files *f);

#endif
