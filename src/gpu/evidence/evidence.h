/* Evidence that a device gives the definition's bits. Before a model runs on it, kernels of the model are compared with
 * plain C on inputs that reveal other roundings, flushed denormals and lost signs. */
#ifndef EK_GPU_EVIDENCE_EVIDENCE_H
#define EK_GPU_EVIDENCE_EVIDENCE_H

#include "base/buf.h"
#include "gpu/weights/weights.h"

/* Appends the properties of a model that decide which comparisons are made, one per line. */
void ek_gpu_evidence_needs(ek_buf *out, const ek_model *m);
/* Makes the comparisons, *n of them. EUNSUPPORTED: a sentence names the kernel that differs. The device's memory is
 * freed again. */
ek_err ek_gpu_prove(ek_gpu *g, const ek_model *m, int *n);

/* --- for the files of this folder */

typedef struct ek_trial {
    ek_gpu *g;
    const ek_model *m;
    CUdeviceptr at; /* device memory; each comparison takes it from the beginning */
    size_t used, room;
    int n;
} ek_trial;

enum { EK_TRIAL_ROOM = 64 << 20 };

/* Device memory with a copy of these bytes; from NULL: filled with NaN. */
CUdeviceptr ek_trial_up(ek_trial *t, const void *from, size_t bytes);
/* Compare n floats or bytes that a kernel wrote with the expected ones; NaN equals NaN. */
ek_err ek_trial_floats(ek_trial *t, const char *kernel, CUdeviceptr got, const float *want, size_t n);
ek_err ek_trial_bytes(ek_trial *t, const char *kernel, CUdeviceptr got, const void *want, size_t n);
/* Fills x with numbers of at most 2^limit whose size changes every 16, zeros of both signs and denormals included. */
void ek_trial_hard(float *x, size_t n, uint64_t seed, int limit);

ek_err ek_trial_products(ek_trial *t);
ek_err ek_trial_rows(ek_trial *t);
ek_err ek_trial_attention(ek_trial *t);
ek_err ek_trial_draws(ek_trial *t);
/* The distinct matrices of m, *n of them, at most EK_TRIAL_MATRICES. */
enum { EK_TRIAL_MATRICES = 64 };
void ek_trial_matrices(const ek_linear *out[EK_TRIAL_MATRICES], int *n, const ek_model *m);

#endif
