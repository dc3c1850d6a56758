/* The identity of a checkpoint: a hash of every byte that makes the model. */
#ifndef EK_MODEL_DIGEST_H
#define EK_MODEL_DIGEST_H

#include "base/err.h"
#include "base/machine/pool.h"

/* Writes 16 hex digits and NUL. path: a folder, of which config.json and all *.safetensors files count, by name and
 * content; a GGUF file with its parts, or the folder that holds it, by content; or another file. Equal for equal
 * contents, wherever they lie and however many threads read. Reads everything once, in the threads of pool (NULL: the
 * caller's). Not for secrets: it recognises a model, it does not resist forgery. ENOTFOUND, EIO with the path. */
ek_err ek_model_digest(char out[17], const char *path, ek_pool *pool);

#endif
