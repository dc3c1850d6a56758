/* The identity of a checkpoint: a hash of every byte that decides its tokens. */
#ifndef EK_MODEL_DIGEST_H
#define EK_MODEL_DIGEST_H

#include "base/err.h"
#include "base/machine/pool.h"

enum { EK_MODEL_DIGEST = 65 }; /* its digits and NUL */

/* Writes a SHA-256 in 64 hex digits. path: a folder, of which all *.safetensors files and the JSON files that decide
 * tokens count, by name and content: config.json, generation_config.json (suppress_tokens), tokenizer.json (masks of
 * formats), processor_config.json and preprocessor_config.json (pictures and sounds); a GGUF file with its parts, or
 * the folder that holds it, by content; or another file. Equal for equal contents, wherever they lie and however many
 * threads read. Reads everything once, in the threads of pool (NULL: the caller's): blocks of 4 MiB are hashed by
 * themselves, and their hashes again. ENOTFOUND, EIO with the path. */
ek_err ek_model_digest(char out[EK_MODEL_DIGEST], const char *path, ek_pool *pool);

/* The same, but hashes of files that did not change are taken from a small file in `folder` and kept there: known by
 * device, inode, size and times. A damaged one is ignored and written anew; a folder that cannot be written costs the
 * next start its time. folder "" or NULL: nothing is kept. */
ek_err ek_model_digest_kept(char out[EK_MODEL_DIGEST], const char *path, const char *folder, ek_pool *pool);

/* What anybody computes with sha256sum, for receipts. weights: of a folder
 *   sha256sum config.json *.safetensors | LC_ALL=C sort | sha256sum
 * of one file its SHA-256, of a GGUF in parts the same line over its parts in their order, without `sort`. tokenizer:
 * of a folder the line of weights over those that there are of chat_template.jinja, generation_config.json,
 * preprocessor_config.json, processor_config.json, tokenizer.json and tokenizer_config.json; else as weights. more: a
 * file of towers that stands among the weights, or NULL. Files of a folder are read by the threads of pool. ENOTFOUND,
 * EIO; ETOOLARGE for a folder of more than 4,096 files of weights. */
ek_err ek_model_sha256(char weights[EK_MODEL_DIGEST], char tokenizer[EK_MODEL_DIGEST], const char *path,
                       const char *more, ek_pool *pool);

#endif
