/* A checkpoint on disk: named tensors in memory-mapped files. Nothing is copied.
 *
 * Safetensors are checked by the rules of the reference reader: bounded header length, entries that tile the data
 * without hole or overlap, byte count equal to shape times dtype, no duplicate names. A directory is read through
 * model.safetensors.index.json if it exists (every listed tensor must be in its file), otherwise all model*.safetensors
 * are read; a tensor in two files is an error. Every error names the file, and the tensor if there is one. */
#ifndef EK_TENSOR_CHECKPOINT_H
#define EK_TENSOR_CHECKPOINT_H

#include "base/err.h"
#include "tensor/dtype.h"

#include <stdint.h>

enum { EK_MAX_DIMS = 8 };

/* Borrowed from the checkpoint. data may be unaligned; bytes is its size. */
typedef struct ek_tensor {
    const char *name, *file;
    ek_dtype dtype;
    int n_dims;
    int64_t dim[EK_MAX_DIMS]; /* outermost first; row-major, little-endian */
    const uint8_t *data;
    size_t bytes;
} ek_tensor;

typedef struct ek_checkpoint ek_checkpoint;

/* path: a directory or one .safetensors file. ENOTFOUND, EIO, EFORMAT; EUNSUPPORTED for another element type. */
ek_err ek_checkpoint_open(ek_checkpoint **out, const char *path);
void ek_checkpoint_close(ek_checkpoint *c);
void ek_checkpoint_drop_pages(const ek_checkpoint *c); /* ek_map_drop_pages of its files */
int ek_checkpoint_count(const ek_checkpoint *c);
const ek_tensor *ek_checkpoint_at(const ek_checkpoint *c, int i);              /* in name order */
const ek_tensor *ek_checkpoint_find(const ek_checkpoint *c, const char *name); /* NULL if absent */

/* Parses the header of one safetensors file in memory (size bytes): the part of open without I/O, also for the
 * fuzzer. file is the name for errors. Calls each(arg, tensor) in file order after everything was checked; names point
 * into memory freed on return. */
ek_err ek_safetensors_parse(const uint8_t *data, size_t size, const char *file,
                            void (*each)(void *arg, const ek_tensor *t), void *arg);

/* --- listing: the tensors of a checkpoint by name, type and shape, in any container; for people, not for models --- */

enum { EK_LISTING_DIMS = 8 };

typedef struct ek_listed {
    const char *name, *type; /* type in the container's words: "BF16", "q4_0", "type 77" */
    int n_dims;
    int64_t dim[EK_LISTING_DIMS]; /* outermost first */
    double bytes;
} ek_listed;

typedef struct ek_listing ek_listing;

/* path: a folder or file of safetensors, a GGUF file (with all files of a split one), or a folder that holds one.
 * Errors of ek_checkpoint_open and ek_gguf_open. */
ek_err ek_listing_open(ek_listing **out, const char *path);
void ek_listing_close(ek_listing *l); /* NULL is allowed */
int ek_listing_count(const ek_listing *l);
const ek_listed *ek_listing_at(const ek_listing *l, int i); /* borrowed; in the order of the files or of names */

#endif
