/* Which plane lies where in which file, and the files' heads. */
#ifndef EK_CONVERT_PLACE_H
#define EK_CONVERT_PLACE_H

#include "convert/layout.h"
#include "tensor/gguf.h"

typedef struct ek_place_file {
    char *name; /* in the folder; whole path of a GGUF file */
    ek_buf head;
    uint64_t bytes; /* head included */
} ek_place_file;

typedef struct ek_place {
    ek_place_file *file;
    int n;
    ek_buf index; /* model.safetensors.index.json; empty with one file */
} ek_place;

/* Divides the tensors into files of at most max_bytes (a tensor alone may be larger; 0: one file), in order. */
ek_err ek_place_gguf(ek_place *p, ek_layout *l, const ek_gguf_meta *meta, const char *path, double max_bytes);
ek_err ek_place_safetensors(ek_place *p, ek_layout *l, double max_bytes);
void ek_place_fini(ek_place *p);

#endif
