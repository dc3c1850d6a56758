/* One set of weights written twice: as a quantiser stores them, and as the F32 values that they stand for. */
#ifndef EK_TESTS_SUPPORT_TWICE_H
#define EK_TESTS_SUPPORT_TWICE_H

#include <stdbool.h>

#include "model/config/config.h"
#include "safetensors.h"

/* Adds a module of rows x k to out and replaces w by the values of what was stored; false, and nothing done, where the
 * shape does not allow it. */
typedef bool pack_fn(void *arg, st_file *out, const char *module, int rows, int k, float *w);

/* Writes a checkpoint of hashed weights into dir, its matrices by pack, and into hf_dir as floats; section is added to
 * dir's config.json. In exact mode both must give the same bits. Embeddings and routers stay floats, and so do experts
 * unless each is a module. */
void write_twice(const char *dir, const char *hf_dir, const ek_config *c, bool single_experts, pack_fn *pack, void *arg,
                 const char *section);

/* For a pack_fn: a tensor of a x b (b 0: of a); v as `bits` bits from bit `bit` on of zeroed bytes. */
void twice_add(st_file *f, const char *module, const char *suffix, const char *type, int64_t a, int64_t b,
               const void *data, size_t bytes);
void twice_bits(uint8_t *to, size_t bit, unsigned v, int bits);

#endif
