/* The head of a GGUF file (version 3, little-endian): metadata and tensor table. Source: ggml, docs/gguf.md.
 *
 * Values are appended in the order they shall stand in; keys must differ. Then ek_gguf_head lays the tensors out one
 * after the other, each from a multiple of EK_GGUF_ALIGN on, and writes everything before the data. */
#ifndef EK_TENSOR_GGUF_WRITE_H
#define EK_TENSOR_GGUF_WRITE_H

#include <stdbool.h>

#include "base/buf.h"

enum { EK_GGUF_ALIGN = 32 };

/* Metadata so far. Zero-initialise; ek_gguf_meta_fini when done. */
typedef struct ek_gguf_meta {
    ek_buf bytes;
    uint64_t n;
} ek_gguf_meta;

void ek_gguf_meta_fini(ek_gguf_meta *m);
void ek_gguf_put_u16(ek_gguf_meta *m, const char *key, uint16_t v);
void ek_gguf_put_u32(ek_gguf_meta *m, const char *key, uint32_t v);
void ek_gguf_put_i32(ek_gguf_meta *m, const char *key, int32_t v);
void ek_gguf_put_f32(ek_gguf_meta *m, const char *key, float v);
void ek_gguf_put_bool(ek_gguf_meta *m, const char *key, bool v);
void ek_gguf_put_string(ek_gguf_meta *m, const char *key, const char *text, size_t n);
void ek_gguf_put_i32s(ek_gguf_meta *m, const char *key, const int32_t *v, size_t n);
void ek_gguf_put_f32s(ek_gguf_meta *m, const char *key, const float *v, size_t n);
void ek_gguf_put_bools(ek_gguf_meta *m, const char *key, const bool *v, size_t n);
/* An array of n strings: exactly n calls of ek_gguf_add_string must follow. */
void ek_gguf_put_strings(ek_gguf_meta *m, const char *key, size_t n);
void ek_gguf_add_string(ek_gguf_meta *m, const char *text, size_t n);

typedef struct ek_gguf_entry {
    const char *name; /* below 64 bytes */
    int n_dims;       /* 1 to 4 */
    int64_t dim[4];   /* outermost first: a matrix of n outputs and k inputs is {n, k} */
    uint32_t type;    /* ggml's number */
    uint64_t bytes;
    uint64_t offset; /* set by ek_gguf_head: from the start of the data, which follows the head */
} ek_gguf_entry;

/* Appends the head, padded to EK_GGUF_ALIGN, and sets the offsets. The file ends after the last tensor's bytes, padded
 * likewise: *data_bytes after the head. */
void ek_gguf_head(ek_buf *out, const ek_gguf_meta *m, ek_gguf_entry *entry, int n, uint64_t *data_bytes);

#endif
