/* Packed weights in a file, which the next start maps instead of packing the checkpoint again: one file for the text
 * model and one per tower.
 *
 * The file's name is a hash of everything that its bytes depend on: this build's layout, the processor's kernels, each
 * matrix's form, and the checkpoint's files by path, inode, size and times of change. A file is written under another
 * name and renamed when it is complete; its bytes are checked by hash before use. A changed checkpoint, another version
 * of the program and a damaged file therefore lead to new packing, never to wrong weights. */
#ifndef EK_MODEL_PACKED_H
#define EK_MODEL_PACKED_H

#include "base/file.h"
#include "model/weights/weights.h"

typedef struct ek_packed {
    char *path;   /* owned; NULL: unused */
    ek_map map;   /* the file once found, mapped for the model's life */
    size_t first; /* offset of the weights in the file, in bytes */
} ek_packed;

/* Names the file in folder `dir` (created if missing) for the planned items of the checkpoint at `checkpoint`. EIO if
 * the folder cannot be created or the checkpoint's files cannot be examined. */
ek_err ek_packed_open(ek_packed *p, const char *dir, const char *checkpoint, const ek_items *list, const ek_weights *w,
                      const ek_pack_opts *o);
/* Maps and checks the file. False if there is none, or if it is unusable, which is logged. */
bool ek_packed_find(ek_packed *p, const ek_weights *w, ek_pool *pool);
/* Writes the file. A failure (a full disk) is logged and leaves no file. A page of the page cache lies on the NUMA node
 * of the thread that first wrote or read it; both happen on the node whose panels the page holds. */
void ek_packed_write(const ek_packed *p, const ek_weights *w, ek_pool *pool);
void ek_packed_close(ek_packed *p); /* unmaps */

#endif
