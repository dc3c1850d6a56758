/* GGUF files from memory, and their metadata one after the other. */
#ifndef EK_TESTS_SUPPORT_GGUF_MEMORY_H
#define EK_TESTS_SUPPORT_GGUF_MEMORY_H

#include "tensor/gguf.h"

/* One file in memory, which stays the caller's and outlives *out; file is its name for errors. The errors of
 * ek_gguf_open. */
ek_err gguf_of_memory(ek_gguf **out, const uint8_t *data, size_t size, const char *file);

/* Metadata in the order of the file; of a split one, that of its first part. */
int gguf_value_count(const ek_gguf *g);
const ek_gguf_value *gguf_value_at(const ek_gguf *g, int i);

#endif
