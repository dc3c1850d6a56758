/* GGUF files, versions 2 and 3: typed metadata and named tensors in memory-mapped files. Only names are copied.
 *
 * A model may be split over files NAME-00001-of-0000N.gguf; the name of any of them opens all. Every count and offset
 * is checked against the file's size before memory is taken for it; keys and names are unique; tensors lie inside the
 * file and do not overlap. Time and memory are linear in the bytes before the data, except the sorting of names. Every
 * error names the file.
 *
 * Source: ggml, docs/gguf.md. */
#ifndef EK_TENSOR_GGUF_H
#define EK_TENSOR_GGUF_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The types of metadata values, with their numbers in files. */
typedef enum ek_gguf_kind {
    EK_GGUF_U8,
    EK_GGUF_I8,
    EK_GGUF_U16,
    EK_GGUF_I16,
    EK_GGUF_U32,
    EK_GGUF_I32,
    EK_GGUF_F32,
    EK_GGUF_BOOL,
    EK_GGUF_STRING,
    EK_GGUF_ARRAY,
    EK_GGUF_U64,
    EK_GGUF_I64,
    EK_GGUF_F64,
    EK_GGUF_KINDS
} ek_gguf_kind;

/* A metadata value, or an array; points into the file. */
typedef struct ek_gguf_value {
    const char *key; /* without NUL */
    size_t n_key;
    ek_gguf_kind kind; /* of the value, or of an array's elements: never EK_GGUF_ARRAY */
    bool is_array;
    uint64_t count;      /* of an array; else 1 */
    const uint8_t *data; /* the stored elements; strings have their lengths before them */
    size_t bytes;
} ek_gguf_value;

/* A type of stored tensors. Rows are made of blocks of `block` weights in `bytes` bytes. */
typedef struct ek_gguf_type {
    const char *name; /* ggml's name in lower case: "q4_0" */
    int block, bytes;
} ek_gguf_type;

enum { EK_GGUF_MAX_DIMS = 4 };

typedef struct ek_gguf_tensor {
    const char *name, *file;
    uint32_t type; /* its number in files */
    int n_dims;
    int64_t dim[EK_GGUF_MAX_DIMS]; /* innermost first, as in the file; 1 beyond n_dims */
    const uint8_t *data;
    size_t bytes; /* 0 for a type of unknown size */
} ek_gguf_tensor;

typedef struct ek_gguf ek_gguf;

/* Opens a file, all files of a split model, or the one model of a folder. ENOTFOUND (also for a missing file of a split
 * model), EIO, EFORMAT; EUNSUPPORTED for another version or byte order. */
ek_err ek_gguf_open(ek_gguf **out, const char *path);
void ek_gguf_close(ek_gguf *g);            /* NULL is allowed */
void ek_gguf_drop_pages(const ek_gguf *g); /* ek_map_drop_pages of its files */

/* Metadata; of a split model that of its first file. NULL if absent. */
const ek_gguf_value *ek_gguf_find(const ek_gguf *g, const char *key);

/* Tensors in the order of the files. */
int ek_gguf_tensor_count(const ek_gguf *g);
const ek_gguf_tensor *ek_gguf_tensor_at(const ek_gguf *g, int i);
const ek_gguf_tensor *ek_gguf_tensor_find(const ek_gguf *g, const char *name); /* NULL if absent */

/* Whether a file begins like GGUF, or is named so. */
bool ek_gguf_is_file(const char *path);
/* Whether a folder has GGUF files of models and no safetensors. */
bool ek_gguf_is_folder(const char *path);

int ek_gguf_file_count(const ek_gguf *g);
const char *ek_gguf_file_name(const ek_gguf *g, int i); /* the path of file i */

/* NULL for an unknown or removed number. */
const ek_gguf_type *ek_gguf_type_of(uint32_t number);

/* Element i of an array, or a value (i 0), for integers and bools; false for other kinds and outside int64. */
bool ek_gguf_int(const ek_gguf_value *v, uint64_t i, int64_t *out);
bool ek_gguf_float(const ek_gguf_value *v, uint64_t i, double *out);  /* any number */
bool ek_gguf_text(const ek_gguf_value *v, const char **s, size_t *n); /* a string without NUL */
bool ek_gguf_text_is(const ek_gguf_value *v, const char *s);          /* v may be NULL */

/* Walks a string or an array of strings; *at starts at v->data. False at the end and for other kinds. */
bool ek_gguf_next_text(const ek_gguf_value *v, const uint8_t **at, const char **s, size_t *n);

/* --- writing the head of a GGUF file (version 3, little-endian): metadata and tensor table. Source: ggml,
 * docs/gguf.md. Values are appended in file order; keys must differ. Then ek_gguf_head lays the tensors out one after
 * the other, each from a multiple of EK_GGUF_ALIGN on, and writes everything before the data. --- */

enum { EK_GGUF_ALIGN = 32 };

/* The metadata so far. Zero-initialise; free with ek_gguf_meta_fini. */
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
    uint64_t offset; /* set by ek_gguf_head: bytes from the start of the data, which follows the head */
} ek_gguf_entry;

/* Appends the head, padded to EK_GGUF_ALIGN, and sets the offsets. *data_bytes: bytes of the data after the head, with
 * the last tensor padded likewise. */
void ek_gguf_head(ek_buf *out, const ek_gguf_meta *m, ek_gguf_entry *entry, int n, uint64_t *data_bytes);

#endif
