/* The tensors of a checkpoint by name, type and shape, whatever its container: for people, not for models. */
#ifndef EK_TENSOR_LISTING_H
#define EK_TENSOR_LISTING_H

#include <stdint.h>

#include "base/err.h"

enum { EK_LISTING_DIMS = 8 };

typedef struct ek_listed {
    const char *name, *type; /* type as the container calls it: "BF16", "q4_0", "type 77" */
    int n_dims;
    int64_t dim[EK_LISTING_DIMS]; /* outermost first */
    double bytes;
} ek_listed;

typedef struct ek_listing ek_listing;

/* path: a folder or file of safetensors, a GGUF file (with the other parts of a split one) or a folder that holds one.
 * The errors of ek_checkpoint_open and ek_gguf_open. */
ek_err ek_listing_open(ek_listing **out, const char *path);
void ek_listing_close(ek_listing *l); /* NULL is fine */
int ek_listing_count(const ek_listing *l);
const ek_listed *ek_listing_at(const ek_listing *l, int i); /* borrowed; in the order of the files, or of names */

#endif
