/* Evidence that a device gives the definition's bits. Before a model runs on it, kernels of the model are compared with
 * plain C on inputs that reveal other roundings, flushed denormals and lost signs. */
#ifndef EK_GPU_EVIDENCE_EVIDENCE_H
#define EK_GPU_EVIDENCE_EVIDENCE_H

#include "base/buf.h"
#include "gpu/weights/weights.h"

/* Appends the properties of a model that decide which comparisons are made, one per line. */
void ek_gpu_evidence_needs(ek_buf *out, const ek_model *m);
/* Makes the comparisons, *n of them, for a model or a drafter. EUNSUPPORTED: a sentence names the kernel that differs.
 * The device's memory is freed again. Every kernel that a step of m can launch is compared (tests/gpu/test_trials.c).
 */
ek_err ek_gpu_prove(ek_gpu *g, const ek_model *m, int *n);

/* --- for the files of this folder */

typedef struct ek_trial {
    ek_gpu *g;
    const ek_model *m;
    CUdeviceptr at; /* device memory; each comparison takes it from the beginning */
    size_t used, room;
    int n;
    bool goes_on; /* continues after different results: for tests, whose device computes nothing */
} ek_trial;

enum { EK_TRIAL_ROOM = 64 << 20 };

/* Device memory with a copy of these bytes; from NULL: filled with NaN. ek_trial_down copies back and waits. */
CUdeviceptr ek_trial_up(ek_trial *t, const void *from, size_t bytes);
void ek_trial_down(ek_trial *t, void *to, CUdeviceptr from, size_t bytes);
/* Room for records of rows of k elements in groups of a_group; 0: none. */
ek_cuda_acts ek_trial_acts(ek_trial *t, int k, int a_group, int rows);
/* Compare n floats or bytes that a kernel wrote with the expected ones; NaN equals NaN. The last one: bytes that the
 * host has already. */
ek_err ek_trial_floats(ek_trial *t, const char *kernel, CUdeviceptr got, const float *want, size_t n);
ek_err ek_trial_bytes(ek_trial *t, const char *kernel, CUdeviceptr got, const void *want, size_t n);
ek_err ek_trial_same(ek_trial *t, const char *kernel, const void *got, const void *want, size_t n);
/* Compares quantised rows with C's records of x, rows of ld floats. */
ek_err ek_trial_records(ek_trial *t, const char *kernel, const ek_cuda_acts *a, const float *x, int64_t ld, int rows);
/* n numbers of at most 2^limit whose size changes every 16, zeros of both signs and denormals included; free() them. 64
 * zeros follow. */
float *ek_trial_hard(size_t n, uint64_t seed, int limit);

/* All that follow, of t->m on t->g. */
ek_err ek_trial_all(ek_trial *t);
ek_err ek_trial_products(ek_trial *t);
ek_err ek_trial_rows(ek_trial *t);
ek_err ek_trial_attention(ek_trial *t);
ek_err ek_trial_draws(ek_trial *t);
ek_err ek_trial_experts(ek_trial *t);
ek_err ek_trial_gated(ek_trial *t);
ek_err ek_trial_drafts(ek_trial *t);

/* The distinct matrices of m, *n in number, at most EK_TRIAL_MATRICES: either the matrices that all rows read, or those
 * of experts. */
enum { EK_TRIAL_MATRICES = 64 };
void ek_trial_matrices(const ek_linear *out[EK_TRIAL_MATRICES], int *n, const ek_model *m, bool experts);
/* Makes *w a matrix like `of` with EK_TRIAL_OUTPUTS outputs, random codes and hard scales; ek_trial_drop frees it. */
enum { EK_TRIAL_PANELS = 4, EK_TRIAL_OUTPUTS = EK_TRIAL_PANELS * EK_PANEL };
ek_err ek_trial_matrix(ek_linear *w, const ek_linear *of, uint64_t seed);
void ek_trial_drop(ek_linear *w);
/* w on the device at `to`, with layout l. */
ek_err ek_trial_put_matrix(ek_trial *t, const ek_cuda_linear *l, const ek_linear *w, CUdeviceptr to);
/* y = rows of x times w as C computes them, ldy EK_TRIAL_OUTPUTS. x: rows of w->k floats. */
void ek_trial_expect(float *y, const ek_linear *w, const float *x, int rows);
/* Arguments of a product by l of rows of x, which go to the device, quantised where l reads that. */
ek_cuda_linear_args ek_trial_inputs(ek_trial *t, const ek_cuda_linear *l, const float *x, int rows);

#endif
