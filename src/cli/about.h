/* What a checkpoint is, in a few words, for list and inspect. Describes what cannot be run as well. */
#ifndef EK_CLI_ABOUT_H
#define EK_CLI_ABOUT_H

#include "base/err.h"
#include "model/config.h"

typedef struct ek_about {
    char container[24];  /* "safetensors", "MLX", "GGUF", "file" */
    char model_type[64]; /* as config.json or the file's metadata call it; "" if they do not */
    char variant[24];    /* "E2B", "26B-A4B", ...; "own" for another Gemma 4; "" for what is none */
    char format[128]; /* of most of the weights, as the files say: "bf16", "4 bits in groups of 64", "gptq, 4 bits" */
    bool drafter;
} ek_about;

/* path: a folder or a file. Never fails: what cannot be read is not said. */
void ek_about_read(ek_about *a, const char *path);
/* "Gemma 4 E2B, safetensors, bf16", or what is known. */
void ek_about_text(char *out, size_t room, const ek_about *a);

/* The published size that a configuration has, "own" if none. */
const char *ek_about_variant(const ek_config *c);

#endif
