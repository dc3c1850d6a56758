/* Facts about a card, in files in the user's cache folder. The first start with a card, driver and program finds them
 * out; later starts read them.
 *
 * Times of its kernels (gpu/gpu.h), measured on a kind of card without built-in times. Only speed depends on them.
 * Proofs: results of comparing its kernels with the definition (gpu/evidence), per kind of model. */
#ifndef EK_OPEN_CARD_H
#define EK_OPEN_CARD_H

#include "base/buf.h"
#include "cuda/driver.h"
#include "gpu/gpu.h"

/* --- times --- */

/* Called for an open device before its weights are uploaded (ek_gpu_driver.tune). Reads the times from the file, or
 * measures them, writes the file and logs that. Does nothing if the card has built-in times. A folder that cannot be
 * written, or a device that cannot be timed, is no error. */
void ek_tuning_take(ek_cuda *c);
void ek_tuning_again(ek_cuda *c); /* always measures, on any card */

/* Appends XDG_CACHE_HOME/evenkeel or ~/.cache/evenkeel, from the environment (getenv); nothing if neither is set. */
void ek_tuning_folder(ek_buf *out, char *(*env)(const char *name));
/* The key of factors: card, driver, program and the built-in times that they multiply. The path is that of the key's
 * file. */
void ek_tuning_key(ek_buf *out, const ek_cuda *c);
void ek_tuning_path(ek_buf *out, const char *folder, const char *key);
/* EIO, ENOTFOUND; EFORMAT: the file is damaged or has another key. */
ek_err ek_tuning_read(double factor[EK_CUDA_FAMILIES], const char *path, const char *key);
/* Makes the folder if necessary; no reader sees an incomplete file. EIO with the path. */
ek_err ek_tuning_write(const double factor[EK_CUDA_FAMILIES], const char *folder, const char *path, const char *key);

/* --- proofs --- */

/* Reads the result, or compares and keeps it; called before the model's weights are uploaded (ek_gpu_driver.prove). If
 * a comparison fails on a device with cooperative matrices, its kernels without matrices are compared, and used if they
 * agree. EUNSUPPORTED: a sentence names the kernel that differs or that the driver does not compile, or the device is
 * lost. A folder that cannot be written is no error. */
ek_err ek_proven_take(ek_gpu *g, const ek_model *m);

#endif
