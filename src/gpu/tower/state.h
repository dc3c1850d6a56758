/* Inside src/gpu/tower: data of all encoders. An encoder (vision, patches, conformer, runs) is an ek_gpu_tower_ops and
 * a struct that begins with ek_gpu_tower; tower.c runs it. */
#ifndef EK_GPU_TOWER_STATE_H
#define EK_GPU_TOWER_STATE_H

#include "cuda/tower_args.h"
#include "gpu/recipe/linear.h"
#include "gpu/weights/weights.h"
#include "media/part/part.h"
#include "model/tower/tower_audio_state.h"
#include "model/tower/tower_part.h"
#include "model/tower/tower_vision.h"

typedef struct ek_gpu_tower ek_gpu_tower; /* towers.h has the functions for callers */

typedef struct ek_gpu_tower_ops {
    bool (*takes)(const ek_tower_part *p);                             /* whether this is the encoder of p */
    ek_err (*check)(const ek_tower_part *p, const ek_cuda_chip *chip); /* EUNSUPPORTED: a size; NULL: none */
    size_t bytes;                                                      /* of its struct */
    void (*open)(ek_gpu_tower *t);                                     /* host memory of its own; NULL: none */
    void (*close)(ek_gpu_tower *t);                                    /* frees it */
    void (*weights)(ek_gpu_tower *t);   /* visits every weight, by the functions below; called twice */
    ek_err (*measure)(ek_gpu_tower *t); /* from t->media: sizes, t->tokens, t->steps */
    void (*lay_out)(ek_gpu_tower *t);   /* takes its scratch memory; called twice; host-written memory comes first */
    void (*write)(ek_gpu_tower *t);     /* writes the host's part; errors of copies are recorded in g->err */
    double (*macs)(const ek_gpu_tower *t, int step); /* multiply-adds */
    void (*step)(ek_gpu_tower *t, int step);         /* queues a step; errors are recorded in g->err */
} ek_gpu_tower_ops;

extern const ek_gpu_tower_ops ek_gpu_vision_ops, ek_gpu_patches_ops, ek_gpu_conformer_ops, ek_gpu_runs_ops;

struct ek_gpu_tower {
    const ek_gpu_tower_ops *ops;
    const ek_tower_part *part;
    ek_gpu *g;
    /* Memory to hand out: first for weights, then for a content; base 0: it is only counted. */
    CUdeviceptr base;
    size_t at;
    ek_err err; /* of the visit */
    CUdeviceptr weights;
    ek_gpu_buffer buffer; /* staging memory for weights */
    /* The present content; media NULL: none. */
    const ek_media *media;
    float *to; /* the caller's memory */
    int tokens, steps, next;
    CUdeviceptr scratch, rows; /* rows: the result */
    uint8_t *host;             /* staging memory for the first bytes of scratch */
    size_t host_bytes;
    ek_gpu_run run; /* products use only its scratch memory */
    size_t acts_bytes, parts_bytes;
    ek_gpu_writer writer;
    const ek_gpu_input *read; /* the rows from which the records were written */
};

/* --- memory and weights (shared.c) */

CUdeviceptr ek_gpu_tower_take(ek_gpu_tower *t, size_t bytes);
CUdeviceptr ek_gpu_tower_take_rows(ek_gpu_tower *t, int64_t rows, int64_t width); /* floats */

void ek_gpu_tower_matrix(ek_gpu_tower *t, ek_gpu_matrix *to, const ek_linear *from);
void ek_gpu_tower_vector(ek_gpu_tower *t, CUdeviceptr *to, const float *from, int n); /* from NULL: does nothing */

/* Matrices that read the same rows, each with its own clamp. Their outputs are adjacent. Matrices with equal clamps are
 * one matrix, whose tiles fill the device better. */
enum { EK_GPU_TOWER_INPUTS = EK_CUDA_TOWER_INPUTS };

typedef struct ek_gpu_group {
    int n, width;                         /* matrices; floats per row of all outputs */
    int at[EK_GPU_TOWER_INPUTS];          /* column where each matrix's outputs begin */
    int n_x, from[EK_GPU_TOWER_INPUTS];   /* clamped inputs, and the index of the input that each matrix reads */
    float x_clip[EK_GPU_TOWER_INPUTS][2]; /* the clamps of the inputs */
    int n_products;                       /* 1: the first matrix contains all */
    ek_gpu_matrix m[EK_GPU_TOWER_INPUTS];
} ek_gpu_group;

void ek_gpu_tower_group(ek_gpu_tower *t, ek_gpu_group *to, const ek_clipped *const *from, int n);

/* The host's copy of scratch memory that it writes. */
static inline float *ek_gpu_tower_host(const ek_gpu_tower *t, CUdeviceptr p)
{
    return (float *)(void *)(t->host + (p - t->scratch));
}

/* The outputs of the group's i-th matrix, in rows of all outputs. */
static inline CUdeviceptr ek_gpu_tower_part(CUdeviceptr rows, const ek_gpu_group *m, int i)
{
    return rows + sizeof(float) * (size_t)m->at[i];
}

/* --- products */

/* Counts a product's scratch memory; call it in lay_out. */
void ek_gpu_tower_need(ek_gpu_tower *t, const ek_gpu_matrix *m, int rows);
void ek_gpu_tower_need_group(ek_gpu_tower *t, const ek_gpu_group *m, int rows);
void ek_gpu_tower_take_products(ek_gpu_tower *t); /* takes the counted memory */

/* y = rows m, rows of x and y ldx and ldy floats apart. */
void ek_gpu_tower_product(ek_gpu_tower *t, const ek_gpu_matrix *m, int rows, CUdeviceptr x, int64_t ldx, CUdeviceptr y,
                          int64_t ldy);
/* Products of the group, whose inputs are x[0 .. n_x), into rows of m->width floats. */
void ek_gpu_tower_products(ek_gpu_tower *t, const ek_gpu_group *m, int rows, const CUdeviceptr *x, CUdeviceptr y);

/* --- kernels between products --- */

/* Sets x[] and x_norm of a stage, for the group that reads its result; eps: of that norm. */
void ek_gpu_tower_stage_for(ek_cuda_tower_stage_args *a, const ek_gpu_group *m, const CUdeviceptr *x, CUdeviceptr norm,
                            float eps);
/* The grid of a kernel with a block per row; and of ek_tower_gate. */
ek_cuda_grid ek_gpu_tower_row_grid(int rows, int width);
ek_cuda_grid ek_gpu_tower_gate_grid(int rows, int n);

#endif
