/* Files that appear under their names whole or not at all: they are written beside, as NAME.part, synced and renamed.
 *
 * Either one folder of files, which is renamed as a whole, or a few files that are renamed one by one. A second writer
 * of the same name is refused while the first one works; what a killed one left behind is overwritten. */
#ifndef EK_CONVERT_OUTDIR_H
#define EK_CONVERT_OUTDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ek_outdir ek_outdir;

/* n_files files named as given: in the folder path, or (folder false) beside each other with whole paths. Refuses what
 * exists unless force: EINVAL; EBUSY for a second writer; EIO. Nothing is left behind after a failure. */
ek_err ek_outdir_open(ek_outdir **out, const char *path, bool folder, bool force, const char *const *name, int n_files);
/* The file system must have room for bytes: EIO with both numbers. */
ek_err ek_outdir_room(const ek_outdir *o, double bytes);
/* Takes the room on disk now where the file system can. */
ek_err ek_outdir_size(ek_outdir *o, int file, uint64_t bytes);
/* Writes n bytes at an offset. From any thread. The sentence names the file. */
ek_err ek_outdir_write(ek_outdir *o, int file, uint64_t at, const void *bytes, size_t n);
/* Syncs everything and gives the files their names; replaces what was there. Closes o in any case. */
ek_err ek_outdir_commit(ek_outdir *o);
/* Removes everything that was written; NULL is fine. */
void ek_outdir_cancel(ek_outdir *o);

#endif
