/* Packed weights kept in a file, so that the next start maps them instead of packing the checkpoint again: those of the
 * text model in one, those of each tower in one of its own.
 *
 * The file's name is a hash of everything that its bytes depend on: this build's layout, the processor's kernels, each
 * matrix's form, and the checkpoint's files by path, inode, size and times of change. A file is written under another
 * name and renamed when it is whole; its bytes are checked by hash before they are used. So a checkpoint that changed,
 * another version of the program and a damaged file are never read for this one: they are packed again. */
#ifndef EK_MODEL_PACKED_H
#define EK_MODEL_PACKED_H

#include "base/file.h"
#include "model/weights/weights.h"

typedef struct ek_packed {
    char *path;   /* owned; NULL: not used */
    ek_map map;   /* of the file once it was found: mapped for the model's life */
    size_t first; /* byte of the file at which the weights begin */
} ek_packed;

/* Names the file in folder `dir` (made if it is missing) for the planned items of the checkpoint at `checkpoint`. EIO
 * where the folder cannot be made or the checkpoint's files cannot be looked at. */
ek_err ek_packed_open(ek_packed *p, const char *dir, const char *checkpoint, const ek_items *list, const ek_weights *w,
                      const ek_pack_opts *o);
/* Maps and checks the file. False, and a line in the log unless there is none, where it cannot be used. */
bool ek_packed_find(ek_packed *p, const ek_weights *w, ek_pool *pool);
/* Writes the file; a failure (a full disk) is a line in the log and leaves nothing behind. A page of the cache lies on
 * the NUMA node of the thread that wrote it or read it first: both go to the node whose panels it holds. */
void ek_packed_write(const ek_packed *p, const ek_weights *w, ek_pool *pool);
void ek_packed_close(ek_packed *p); /* unmaps */

#endif
