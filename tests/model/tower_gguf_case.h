/* The towers of tower_case.h in GGUF files, as llama.cpp and as Ollama write them. */
#ifndef EK_TESTS_MODEL_TOWER_GGUF_CASE_H
#define EK_TESTS_MODEL_TOWER_GGUF_CASE_H

#include "../support/gguf.h"
#include "tower_case.h"

typedef enum tower_gguf_dialect { TOWER_LLAMA, TOWER_OLLAMA } tower_gguf_dialect;

/* Adds metadata and tensors of the towers to f. skip: a tensor by its name in the file, or NULL. */
void tower_put_gguf(gguf_file *f, const tower_case *c, tower_gguf_dialect d, const char *skip);
/* With matrices of that type where its blocks divide them, not of BF16. */
void tower_put_gguf_as(gguf_file *f, const tower_case *c, tower_gguf_dialect d, const char *skip, uint32_t type);

#endif
