/* A safetensors file, built tensor by tensor. */
#ifndef EK_TESTS_SUPPORT_SAFETENSORS_H
#define EK_TESTS_SUPPORT_SAFETENSORS_H

#include <stdint.h>

#include "base/buf.h"
#include "files.h"

typedef struct st_file {
    ek_buf head, data; /* head: the entries, each followed by a comma */
} st_file;

/* Appends a tensor. Nothing is checked: tests write damaged files with it too. */
void st_add(st_file *f, const char *name, const char *dtype, int n_dims, const int64_t *dim, const void *data,
            size_t bytes);

/* Writes f to DIR/NAME and empties it. */
void st_save(st_file *f, const char *dir, const char *name);

/* Appends a file with this header and this data to out. */
void st_bytes(ek_buf *out, const char *header, const void *data, size_t bytes);

#endif
