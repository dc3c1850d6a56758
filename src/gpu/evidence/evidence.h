/* Evidence that a device gives the definition's bits, before a model runs on it: kernels that the model needs are
 * compared with plain C on inputs where other roundings, flushed denormals and lost signs show. */
#ifndef EK_GPU_EVIDENCE_EVIDENCE_H
#define EK_GPU_EVIDENCE_EVIDENCE_H

#include "base/buf.h"
#include "gpu/weights/weights.h"

/* What of a model decides which comparisons are made: one line each. */
void ek_gpu_evidence_needs(ek_buf *out, const ek_model *m);
/* Makes them; *n: how many. EUNSUPPORTED: the kernel that differs, in one sentence. Nothing of it stays on the device.
 */
ek_err ek_gpu_prove(ek_gpu *g, const ek_model *m, int *n);

/* --- for the files of this folder */

typedef struct ek_trial {
    ek_gpu *g;
    const ek_model *m;
    CUdeviceptr at; /* memory of the device, of which a comparison takes from the beginning on */
    size_t used, room;
    int n;
} ek_trial;

enum { EK_TRIAL_ROOM = 64 << 20 };

/* Memory of the device with these bytes, or with NaN where from is NULL. */
CUdeviceptr ek_trial_up(ek_trial *t, const void *from, size_t bytes);
/* Compares n floats, and bytes, that a kernel wrote; NaN equals NaN. */
ek_err ek_trial_floats(ek_trial *t, const char *kernel, CUdeviceptr got, const float *want, size_t n);
ek_err ek_trial_bytes(ek_trial *t, const char *kernel, CUdeviceptr got, const void *want, size_t n);
/* Numbers of many sizes, in groups of 16 alike: zeros of both signs and denormals among them; at most 2^limit. */
void ek_trial_hard(float *x, size_t n, uint64_t seed, int limit);

ek_err ek_trial_products(ek_trial *t);
ek_err ek_trial_rows(ek_trial *t);
ek_err ek_trial_attention(ek_trial *t);
/* The distinct matrices of m, *n of them; as many as there is room for. */
enum { EK_TRIAL_MATRICES = 64 };
void ek_trial_matrices(const ek_linear *out[EK_TRIAL_MATRICES], int *n, const ek_model *m);

#endif
