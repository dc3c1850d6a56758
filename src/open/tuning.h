/* The times that a card measured for itself (gpu/gpu.h), kept in a file in the user's cache folder. They are measured
 * at the first start on a kind of card without built-in times, for this driver and program, and read at later starts.
 * Only speed depends on them. */
#ifndef EK_OPEN_TUNING_H
#define EK_OPEN_TUNING_H

#include "base/buf.h"
#include "cuda/driver.h"

/* For an opened device, in front of its weights (ek_gpu_driver.tune): takes what the file has, or measures and writes
 * it anew, and says so once. Nothing where times for the card are built in. A folder that cannot be written, or a
 * device that cannot be timed, is no error. */
void ek_tuning_take(ek_cuda *c);
void ek_tuning_again(ek_cuda *c); /* measures whatever is there, on any card */

/* XDG_CACHE_HOME/evenkeel or ~/.cache/evenkeel, of the environment (getenv); empty: neither is set. */
void ek_tuning_folder(ek_buf *out, char *(*env)(const char *name));
ek_err ek_tuning_make_folder(const char *folder); /* and its parent; EIO */
/* What names the card, its driver, the program and the times that factors belong to; and the file's name for it. */
void ek_tuning_key(ek_buf *out, const ek_cuda *c);
void ek_tuning_path(ek_buf *out, const char *folder, const char *key);
/* EIO, ENOTFOUND; EFORMAT: damaged, or of something else. */
ek_err ek_tuning_read(double factor[EK_CUDA_FAMILIES], const char *path, const char *key);
/* Makes the folder, if need be; others never see half of the file. EIO with the path. */
ek_err ek_tuning_write(const double factor[EK_CUDA_FAMILIES], const char *folder, const char *path, const char *key);

#endif
