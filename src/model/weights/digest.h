/* The identity of a checkpoint: a hash of every byte that decides its tokens. */
#ifndef EK_MODEL_DIGEST_H
#define EK_MODEL_DIGEST_H

#include "base/err.h"
#include "base/machine/pool.h"

enum { EK_MODEL_DIGEST = 65 }; /* hex digits and NUL */

/* Writes a SHA-256 as 64 hex digits. path is a folder, a GGUF file, the folder that holds one, or another file. Of a
 * folder these files count, by name and content: *.safetensors, config.json, generation_config.json (suppress_tokens),
 * tokenizer.json (masks of formats), processor_config.json and preprocessor_config.json (pictures and sounds). Of a
 * GGUF all its files count, by content. Equal contents give equal digests, wherever they lie and however many threads
 * read. Reads everything once, on the threads of pool (NULL: the caller's): each block of 4 MiB is hashed, and then
 * their hashes. ENOTFOUND, EIO with the path. */
ek_err ek_model_digest(char out[EK_MODEL_DIGEST], const char *path, ek_pool *pool);

/* The same digest, with hashes of unchanged files from a small file in `folder`, which is updated. A file is unchanged
 * if device, inode, size and times are equal. A damaged store is ignored and rewritten; if it cannot be written, the
 * next start hashes again. folder "" or NULL: nothing is stored. */
ek_err ek_model_digest_kept(char out[EK_MODEL_DIGEST], const char *path, const char *folder, ek_pool *pool);

/* Hashes for receipts that anybody can compute with sha256sum. weights of a folder:
 *   sha256sum config.json *.safetensors | LC_ALL=C sort | sha256sum
 * of one file its SHA-256; of a GGUF in several files the same line over them in order, without `sort`. tokenizer of a
 * folder: the same line over the existing files among chat_template.jinja, generation_config.json,
 * preprocessor_config.json, processor_config.json, tokenizer.json and tokenizer_config.json; otherwise equal to
 * weights. more: a file of towers that counts as weights, or NULL. The pool's threads read a folder's files. ENOTFOUND,
 * EIO; ETOOLARGE for a folder with more than 4,096 weight files. */
ek_err ek_model_sha256(char weights[EK_MODEL_DIGEST], char tokenizer[EK_MODEL_DIGEST], const char *path,
                       const char *more, ek_pool *pool);

#endif
