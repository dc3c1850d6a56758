/* What is known of open GGUF files. Inside src/tensor/gguf*.c and for files of tests in memory. */
#ifndef EK_TENSOR_GGUF_STATE_H
#define EK_TENSOR_GGUF_STATE_H

#include "base/file.h"
#include "tensor/gguf.h"

typedef struct ek_gguf_file {
    char *name; /* as errors call it: the path that was opened */
    ek_map map; /* empty where the caller holds the bytes */
    ek_gguf_value *value;
    int n_values, n_tensors;
} ek_gguf_file;

struct ek_gguf {
    ek_gguf_file *file; /* parts do not move while tensors name their files */
    int n_files;
    ek_gguf_tensor *tensor; /* of all parts, in order */
    int n_tensors, cap;
    const ek_gguf_value **by_key; /* of the first part */
    const ek_gguf_tensor **by_name;
};

/* Parses a part's bytes: fills its values and appends its tensors to g. */
ek_err ek_gguf_file_parse(ek_gguf *g, ek_gguf_file *file, const uint8_t *data, size_t size);
/* After the last part: sorts; EFORMAT for a key or a name that is there twice. */
ek_err ek_gguf_index(ek_gguf *g);

/* The value of a part, found by walking; NULL if absent. */
const ek_gguf_value *ek_gguf_file_find(const ek_gguf_file *file, const char *key);

#endif
