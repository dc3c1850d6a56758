/* The store of responses as files of a folder, one each, so that they survive a restart. A thread writes what changed,
 * at once, and takes away what is forgotten; a file is written beside its place and renamed, so that a process that is
 * killed leaves the old one or the new one. Inside src/serve. */
#ifndef EK_SERVE_RESPONSE_FILES_H
#define EK_SERVE_RESPONSE_FILES_H

#include "serve/store/response_state.h"

typedef struct ek_response_files ek_response_files;

/* --- under the lock of the store --- */

/* e is kept from now on; its file has another text, or none. */
void ek_response_files_put(ek_response_files *f, ek_response_entry *e);
/* e is not kept any more. by: the one that takes its place, which is put next; NULL: none does. */
void ek_response_files_forget(ek_response_files *f, ek_response_entry *e, ek_response_entry *by);

/* --- without it --- */

/* Writes what waits. The entries stay. */
void ek_response_files_close(ek_response_files *f);

#endif
