/* Writes the weights of a layout to their places in the files, by all threads, in pieces. */
#ifndef EK_CONVERT_STREAM_H
#define EK_CONVERT_STREAM_H

#include "base/err.h"
#include "base/machine/pool.h"
#include "convert/layout.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Files that appear under their names complete or not at all: they are written as NAME.part, synced and renamed.
 *
 * The output is either a folder, renamed as a whole, or a few files, renamed one by one. A second writer of the same
 * name is refused while the first one works; leftovers of a killed writer are overwritten. */

typedef struct ek_outdir ek_outdir;

/* Opens n_files files with these names in the folder path, or (folder false) with whole paths. EINVAL if one exists,
 * unless force; also if NAME.part is the source (from, may be NULL) or a folder with files that no writer left; EBUSY
 * for a second writer; EIO. A failure leaves nothing behind. */
ek_err ek_outdir_open(ek_outdir **out, const char *path, const char *from, bool folder, bool force,
                      const char *const *name, int n_files);
/* Checks that the file system has room for bytes: EIO with both numbers. */
ek_err ek_outdir_room(const ek_outdir *o, double bytes);
/* Reserves the bytes on disk, if the file system can. */
ek_err ek_outdir_size(ek_outdir *o, int file, uint64_t bytes);
/* Writes n bytes at an offset. From any thread. The sentence names the file. */
ek_err ek_outdir_write(ek_outdir *o, int file, uint64_t at, const void *bytes, size_t n);
/* Syncs everything and gives the files their names; replaces existing files. Closes o in any case. */
ek_err ek_outdir_commit(ek_outdir *o);
/* Removes everything that was written; NULL is allowed. */
void ek_outdir_cancel(ek_outdir *o);

/* Memory: below 2 MiB per thread, and 40 bytes per 262144 weights. */
typedef struct ek_stream_opts {
    bool search; /* search better scales */
    uint64_t seed;
    ek_pool *pool;
    const volatile sig_atomic_t *cancel;
} ek_stream_opts;

/* Writes all planes of l, each of which has its file and place. EFORMAT, with tensor and row, for a value that the
 * format cannot hold; ECANCELLED; errors of ek_outdir_write. */
ek_err ek_stream(const ek_layout *l, ek_outdir *to, const ek_stream_opts *o);

#endif
