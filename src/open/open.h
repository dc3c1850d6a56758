/* Opens a model: thread pool, model, tokenizer and chat template, device with its fallback, drafter, engine and cache.
 * All programs over the engine use it. */
#ifndef EK_OPEN_OPEN_H
#define EK_OPEN_OPEN_H

#include "base/buf.h"
#include "base/err.h"
#include "chat/prompt.h"
#include "gpu/gpu.h"
#include "gpu/fit/fit.h"
#include "gpu/several/several.h"
#include "model/tower/tower.h"
#include "model/weights/digest.h"
#include "open/opts.h"
#include "open/remote.h"

#include <stdbool.h>

/* An open model; it owns everything in it. ek_opened_close closes it, even if only a part is open. */
typedef struct ek_opened {
    char *path;   /* the model's path, or a synthetic model's name */
    char *digest; /* NULL until ek_opened_digest */
    ek_pool *pool;
    ek_model *model;
    ek_towers *towers;   /* NULL without ek_open_opts.media; ek_towers_get returns the towers */
    ek_drafter *drafter; /* NULL: none */
    ek_gpu *gpu;         /* one device, or NULL */
    ek_ranks *ranks;     /* several devices, or NULL; both NULL: the CPU */
    ek_remote *remote;   /* NULL: no drafts from another server */
    ek_engine *engine;   /* NULL after ek_open_model */
    ek_chat_model chat;  /* zeroed without ek_open_opts.chat; chat.media describes the towers' input */
} ek_opened;

/* Opens pool, model and drafter, and with o->chat the tokenizer before them. Closes everything again on failure. For a
 * device, ek_open_engine reads the weights; do not compute with the model before. EINVAL as ek_open_check; ENOTFOUND,
 * EIO, EFORMAT, EUNSUPPORTED, ENOMEM. */
ek_err ek_open_model(ek_opened *m, const ek_open_opts *o);

/* Opens the engine of a model from ek_open_model, on its device, without starting the engine's thread. With device
 * "auto" the CPU replaces a device without room for model or engine; the log says so. After the copy to a device the
 * weights in host memory are freed. o may have other limits and caches than before. ETOOLONG for ctx_tokens beyond the
 * model's context. On failure everything is closed, the model too. */
ek_err ek_open_engine(ek_opened *m, const ek_open_opts *o);

/* ek_open_model, then ek_open_engine. */
ek_err ek_open(ek_opened *m, const ek_open_opts *o);

/* Opens configuration, tokenizer and template, and an engine whose every step fails, to serve stored replies. No
 * weights are read, and their files may be missing; only pictures and sounds need the files. Errors as of ek_open. */
ek_err ek_open_without_weights(ek_opened *m, const ek_open_opts *o);

/* ek_model_digest of the open model, computed once. Hashes of its files are kept in the user's cache folder for the
 * next start. *out is valid until ek_opened_close. */
ek_err ek_opened_digest(const char **out, ek_opened *m);

/* The same for the model at path, on pool's threads (NULL: the caller's); others may use the model meanwhile. */
ek_err ek_open_digest(char out[EK_MODEL_DIGEST], const char *path, ek_pool *pool);

/* The device in words: ek_gpu_text, ek_ranks_text, or "cpu". */
const char *ek_opened_device(const ek_opened *m);
/* The device, or the first of several; NULL: the CPU. */
ek_gpu *ek_opened_gpu(const ek_opened *m);

void ek_opened_close(ek_opened *m); /* a zeroed one is allowed */

/* Appends the path of o->model, or of the bundled model. */
ek_err ek_open_path(ek_buf *out, const ek_open_opts *o);

/* Opens the model alone with the caller's options: the checkpoint at path, or o->synthetic if that is set. */
ek_err ek_open_weights(ek_model **out, const char *path, const ek_open_opts *o, const ek_model_opts *opts);

/* --- an engine's needs on devices beside the weights, before its number of requests is known */

/* The maximum needs. t: NULL without pictures and sounds; d: NULL without a drafter model. alone: the minimum for one
 * device that takes all free memory, which then holds as many requests as it has room for. */
ek_fit_beside ek_open_beside(const ek_model *m, ek_towers *t, const ek_drafter *d, const ek_open_opts *o, bool alone);

/* --- stores of cached pages. Inside src/open. */

/* Opens the stores that o asks for: host memory, disk and server, in this order; *any is false if there is none. The
 * caller passes *out to the engine, which closes it. */
ek_err ek_open_store(ek_store_backend *out, bool *any, ek_opened *m, const ek_open_opts *o, bool on_device);

/* --- paths of models, without any network */

/* Whether text is a repository of the Hub, ORG/NAME[@REVISION][:FILE], or a short name (hub/name.h); false for an
 * existing path. */
bool ek_model_is_name(const char *text);
/* Whether text ends like a model's file: ".gguf", ".safetensors" and the like, formats that cannot be opened included.
 */
bool ek_model_is_file_name(const char *text);

/* Appends the path of a model, given as a path or as a name in the Hub's cache, whose folder the environment names
 * (hub/client.h). ENOTFOUND: the sentence names the command that fetches the model, a similar name, or the folder
 * without a model. */
ek_err ek_model_find(ek_buf *out, const char *text);

/* Appends the folder of the bundled model, relative to the program's or library's folder (ek_own_folder): models/pocket
 * in the source tree, ../share/evenkeel/models/pocket in an installation. ENOTFOUND names the folders that were tried.
 */
ek_err ek_bundled_find(ek_buf *out);

#endif
