/* A GGUF file, built value by value and tensor by tensor. */
#ifndef EK_TESTS_SUPPORT_GGUF_H
#define EK_TESTS_SUPPORT_GGUF_H

#include <stdint.h>

#include "base/buf.h"
#include "files.h"

typedef struct gguf_file {
    ek_buf meta, table, data;
    uint64_t n_values, n_tensors;
} gguf_file;

/* Metadata. kind is the file's number of a type; nothing is checked: tests write damaged files with it too. */
void gguf_value(gguf_file *f, const char *key, uint32_t kind, const void *bytes, size_t n);
void gguf_array(gguf_file *f, const char *key, uint32_t kind, uint64_t count, const void *bytes, size_t n);
void gguf_u32(gguf_file *f, const char *key, uint32_t v);
void gguf_f32(gguf_file *f, const char *key, float v);
void gguf_bool(gguf_file *f, const char *key, int v);
void gguf_text(gguf_file *f, const char *key, const char *s);
/* A string as it is stored, for arrays of them. */
void gguf_string(ek_buf *out, const char *s, size_t n);

/* Appends a tensor, its dimensions innermost first; its data starts at a multiple of 32. */
void gguf_tensor(gguf_file *f, const char *name, uint32_t type, int n_dims, const int64_t *dim, const void *data,
                 size_t bytes);

/* Appends the file, version 3, to out. */
void gguf_bytes(const gguf_file *f, ek_buf *out);
/* Writes it to DIR/NAME and empties f. */
void gguf_save(gguf_file *f, const char *dir, const char *name);
void gguf_fini(gguf_file *f);

#endif
