/* The weights of a layout to their places in the files, by all threads, in pieces. */
#ifndef EK_CONVERT_STREAM_H
#define EK_CONVERT_STREAM_H

#include "base/err.h"
#include "base/machine/pool.h"
#include "convert/layout.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Files that appear under their names whole or not at all: they are written beside, as NAME.part, synced and renamed.
 *
 * Either one folder of files, which is renamed as a whole, or a few files that are renamed one by one. A second writer
 * of the same name is refused while the first one works; what a killed one left behind is overwritten. */

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

/* Memory: below 2 MiB per thread, and 40 bytes per 262144 weights. */
typedef struct ek_stream_opts {
    bool search; /* for better scales */
    uint64_t seed;
    ek_pool *pool;
    const volatile sig_atomic_t *cancel;
} ek_stream_opts;

/* Every plane of l has its file and its place. EFORMAT, with tensor and row, for a value that the format cannot hold;
 * ECANCELLED; what ek_outdir_write says. */
ek_err ek_stream(const ek_layout *l, ek_outdir *to, const ek_stream_opts *o);

#endif
