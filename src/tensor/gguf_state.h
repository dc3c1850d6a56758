/* The state of open GGUF files. Inside src/tensor/gguf*.c, and for in-memory files of tests. */
#ifndef EK_TENSOR_GGUF_STATE_H
#define EK_TENSOR_GGUF_STATE_H

#include "base/file.h"
#include "tensor/gguf.h"

typedef struct ek_gguf_file {
    char *name; /* for errors: the path that was opened */
    ek_map map; /* empty if the caller holds the bytes */
    ek_gguf_value *value;
    int n_values, n_tensors;
} ek_gguf_file;

struct ek_gguf {
    ek_gguf_file *file; /* must not move while tensors point to their files */
    int n_files;
    ek_gguf_tensor *tensor; /* of all files, in order */
    int n_tensors, cap;
    const ek_gguf_value **by_key; /* of the first file */
    const ek_gguf_tensor **by_name;
};

/* Parses a file's bytes: fills its values and appends its tensors to g. */
ek_err ek_gguf_file_parse(ek_gguf *g, ek_gguf_file *file, const uint8_t *data, size_t size);
/* Sorts after the last file; EFORMAT for a duplicate key or name. */
ek_err ek_gguf_index(ek_gguf *g);

/* The value under a key, by linear search; NULL if absent. */
const ek_gguf_value *ek_gguf_file_find(const ek_gguf_file *file, const char *key);

#endif
