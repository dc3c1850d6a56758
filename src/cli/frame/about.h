/* What a checkpoint is, in a few words, for list and inspect. Describes what cannot be run as well. */
#ifndef EK_CLI_ABOUT_H
#define EK_CLI_ABOUT_H

#include "base/err.h"
#include "model/config/config.h"

typedef struct ek_about {
    char container[24];  /* "safetensors", "MLX", "GGUF", "file" */
    char model_type[64]; /* as config.json or the file's metadata call it; "" if they do not */
    char variant[24];    /* "E2B", "26B-A4B", ...; "own" for another Gemma 4; "" for what is none */
    char format[128]; /* of most of the weights, as the files say: "bf16", "4 bits in groups of 64", "gptq, 4 bits" */
    char method[48];  /* the quantiser that config.json names beside MLX: "gptq", "compressed-tensors"; "" without */
    bool drafter;
} ek_about;

/* path: a folder or a file. Never fails: what cannot be read is not said. */
void ek_about_read(ek_about *a, const char *path);
/* "Gemma 4 E2B, safetensors, bf16", or what is known. */
void ek_about_text(char *out, size_t room, const ek_about *a);

/* The configuration, if it is a Gemma 4's. The container's error, if it cannot be read; *shape says whether the shape
 * is known all the same, as it is where only the quantisation is the hindrance. */
ek_err ek_about_config(ek_config *out, const char *path, bool *shape);

/* The published size that a configuration has, "own" if none. */
const char *ek_about_variant(const ek_config *c);

#endif
