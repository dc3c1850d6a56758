/* Opens a model: thread pool, model, tokenizer and chat template, device with its fall back, drafter, engine and cache.
 * One way for every program over the engine. */
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

/* What is open. Owns all of it; ek_opened_close closes it, also when only a part was opened. */
typedef struct ek_opened {
    char *path;   /* what was opened; a synthetic model's name */
    char *digest; /* NULL until ek_opened_digest was asked */
    ek_pool *pool;
    ek_model *model;
    ek_towers *towers;   /* NULL without ek_open_opts.media; what the model takes: ek_towers_get */
    ek_drafter *drafter; /* NULL: none */
    ek_gpu *gpu;         /* NULL: the CPU, or */
    ek_ranks *ranks;     /* several devices */
    ek_remote *remote;   /* NULL: no drafts from another server */
    ek_engine *engine;   /* NULL after ek_open_model */
    ek_chat_model chat;  /* zeroed without ek_open_opts.chat; chat.media says what the towers take */
} ek_opened;

/* Opens pool, model and drafter, and with o->chat the tokenizer before them. Everything is closed again on failure.
 * For a device the weights of both are read by ek_open_engine: until then nothing computes with them.
 * EINVAL as ek_open_check, and the errors of what it opens: ENOTFOUND, EIO, EFORMAT, EUNSUPPORTED, ENOMEM. */
ek_err ek_open_model(ek_opened *m, const ek_open_opts *o);

/* The engine for a model that ek_open_model opened, on its device; the engine's thread is not started. With the device
 * "auto" the CPU takes the place of a device that has no room for the model or the engine, which is logged. On a device
 * the model's weights in host memory are freed once they are copied. o may have other limits and cache than before.
 * ETOOLONG for ctx_tokens beyond the model's context. Everything, the model too, is closed on failure. */
ek_err ek_open_engine(ek_opened *m, const ek_open_opts *o);

/* Both. */
ek_err ek_open(ek_opened *m, const ek_open_opts *o);

/* The model's configuration, tokenizer and template, and an engine whose every step fails: no weight is read, and the
 * files that hold them may be missing; pictures and sounds need them, and are taken if they are there. For stored
 * replies. The same errors. */
ek_err ek_open_without_weights(ek_opened *m, const ek_open_opts *o);

/* ek_model_digest of what was opened, computed once; what it takes is kept in the user's cache folder for the next
 * start. Valid until ek_opened_close. */
ek_err ek_opened_digest(const char **out, ek_opened *m);

/* The same of the model at path, in the threads of pool (NULL: the caller's), whoever computes with it meanwhile. */
ek_err ek_open_digest(char out[EK_MODEL_DIGEST], const char *path, ek_pool *pool);

/* Where it runs in words: ek_gpu_text, ek_ranks_text, or "cpu". */
const char *ek_opened_device(const ek_opened *m);
/* The device, or the first of several; NULL: the CPU. */
ek_gpu *ek_opened_gpu(const ek_opened *m);

void ek_opened_close(ek_opened *m); /* a zeroed one is allowed */

/* The tokenizer alone; close it with ek_tokenizer_close. */
ek_err ek_open_tokenizer(ek_tokenizer **out, const ek_open_opts *o);

/* Appends the path of o->model, or of the bundled model. */
ek_err ek_open_path(ek_buf *out, const ek_open_opts *o);

/* The model alone, with options of the caller's own: a checkpoint at path, or o->synthetic if it is set. */
ek_err ek_open_weights(ek_model **out, const char *path, const ek_open_opts *o, const ek_model_opts *opts);

/* What an engine will ask of devices beside the model's weights, before it is known how many requests it has. */

/* Rows of a step's prompts on a device where nobody says it, at least: what its memory is planned for. host: the CPU
 * has layers, or experts of some. */
int ek_open_chunk(const ek_model *m, bool host);

/* At most. t: NULL without pictures and sounds; d: NULL without a drafter model. alone: of one device that takes what
 * is free, at least: where nobody says how many requests it has, and how long, it has as many as there is room for. */
ek_fit_beside ek_open_beside(const ek_model *m, ek_towers *t, const ek_drafter *d, const ek_open_opts *o, bool alone);

/* Where pages of the prefix cache are kept besides the pool. Inside src/open. */

/* Opens what o asks for: host memory, disk and server, in this order; *any is false if nothing is. The store is the
 * caller's to hand to the engine, which closes it. */
ek_err ek_open_store(ek_store_backend *out, bool *any, ek_opened *m, const ek_open_opts *o, bool on_device);

/* Where a model lies: what is opened for a path or a name, without any network. */

/* Whether text names a repository of the Hub, ORG/NAME[@REVISION][:FILE], or is a short name (hub/name.h): what exists
 * as a path is one. */
bool ek_model_is_name(const char *text);
/* Whether it ends as files of models do: ".gguf", ".safetensors" and the like, also those that cannot be opened here.
 */
bool ek_model_is_file_name(const char *text);

/* Appends the path to open for a path or the name of a repository in the Hub's cache, whose place the environment says
 * (hub/client.h). ENOTFOUND names the command that fetches it, guesses at a word that is no name, and says it of a
 * folder that holds no model. */
ek_err ek_model_find(ek_buf *out, const char *text);

/* Appends the folder of the bundled model, found from that of the program or the library (ek_own_folder): models/pocket
 * of the source tree, ../share/evenkeel/models/pocket of an installation. ENOTFOUND names the folders that were tried.
 */
ek_err ek_bundled_find(ek_buf *out);

#endif
