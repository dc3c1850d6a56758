/* Inside src/gpu/tower: what the encoders of all senses are made of. An encoder (vision, patches, conformer, runs) is
 * an ek_gpu_tower_ops and a struct that begins with ek_gpu_tower; tower.c drives it. */
#ifndef EK_GPU_TOWER_STATE_H
#define EK_GPU_TOWER_STATE_H

#include "cuda/tower_args.h"
#include "gpu/recipe/linear.h"
#include "gpu/weights/weights.h"
#include "media/part/part.h"
#include "model/tower/tower_audio_state.h"
#include "model/tower/tower_part.h"
#include "model/tower/tower_vision.h"

typedef struct ek_gpu_tower ek_gpu_tower; /* tower.h has what callers do with one */

typedef struct ek_gpu_tower_ops {
    bool (*takes)(const ek_tower_part *p);                             /* whether it is the encoder of p */
    ek_err (*check)(const ek_tower_part *p, const ek_cuda_chip *chip); /* EUNSUPPORTED: a size that its kernels lack */
    size_t bytes;                                                      /* of its struct */
    void (*open)(ek_gpu_tower *t);                                     /* host memory of its own; NULL: none */
    void (*close)(ek_gpu_tower *t);                                    /* frees it */
    void (*weights)(ek_gpu_tower *t);   /* visits every weight, by the functions of weights.c; called twice */
    ek_err (*measure)(ek_gpu_tower *t); /* of t->media: sizes, t->tokens, t->steps */
    void (*lay_out)(ek_gpu_tower *t);   /* its scratch memory, called twice: first what the host writes */
    void (*write)(ek_gpu_tower *t);     /* what the host writes; failures of copies are noted in g->err */
    double (*macs)(const ek_gpu_tower *t, int step); /* multiply-adds */
    void (*step)(ek_gpu_tower *t, int step);         /* queues it; failures are noted in g->err */
} ek_gpu_tower_ops;

extern const ek_gpu_tower_ops ek_gpu_vision_ops, ek_gpu_patches_ops, ek_gpu_conformer_ops, ek_gpu_runs_ops;

struct ek_gpu_tower {
    const ek_gpu_tower_ops *ops;
    const ek_tower_part *part;
    ek_gpu *g;
    /* Memory that is handed out: of weights, then of a content; base 0: it is only counted. */
    CUdeviceptr base;
    size_t at;
    ek_err err; /* of visiting */
    CUdeviceptr weights;
    ek_gpu_buffer buffer; /* of weights on their way */
    /* The content; media NULL: none. */
    const ek_media *media;
    float *to; /* the caller's */
    int tokens, steps, next;
    CUdeviceptr scratch, rows; /* rows: what becomes of it */
    uint8_t *host;             /* the first bytes of scratch, on their way */
    size_t host_bytes;
    ek_gpu_run run; /* of which products use scratch memory alone */
    size_t acts_bytes, parts_bytes;
    ek_gpu_writer writer;
    const ek_gpu_input *read; /* the rows whose records are there */
};

/* --- memory and weights (weights.c) */

CUdeviceptr ek_gpu_tower_take(ek_gpu_tower *t, size_t bytes);
CUdeviceptr ek_gpu_tower_take_rows(ek_gpu_tower *t, int64_t rows, int64_t width); /* floats */

void ek_gpu_tower_matrix(ek_gpu_tower *t, ek_gpu_matrix *to, const ek_linear *from);
void ek_gpu_tower_vector(ek_gpu_tower *t, CUdeviceptr *to, const float *from, int n); /* from NULL: nothing */

/* Matrices that read the same rows, each held within its own bounds. Their outputs lie side by side, and where they
 * read alike they are one matrix, whose tiles fill the device better. */
enum { EK_GPU_TOWER_INPUTS = EK_CUDA_TOWER_INPUTS };

typedef struct ek_gpu_group {
    int n, width;                         /* matrices; floats of a row of their outputs */
    int at[EK_GPU_TOWER_INPUTS];          /* in it: where each one's begin */
    int n_x, from[EK_GPU_TOWER_INPUTS];   /* inputs, and which of them each reads */
    float x_clip[EK_GPU_TOWER_INPUTS][2]; /* the inputs' bounds */
    int n_products;                       /* 1: the first matrix is all of them */
    ek_gpu_matrix m[EK_GPU_TOWER_INPUTS];
} ek_gpu_group;

void ek_gpu_tower_group(ek_gpu_tower *t, ek_gpu_group *to, const ek_clipped *const *from, int n);

/* --- products (product.c) */

/* Counts the scratch memory that the product needs, in lay_out. */
void ek_gpu_tower_need(ek_gpu_tower *t, const ek_gpu_matrix *m, int rows);
void ek_gpu_tower_need_group(ek_gpu_tower *t, const ek_gpu_group *m, int rows);
void ek_gpu_tower_take_products(ek_gpu_tower *t); /* takes what was counted */

/* y = rows m, rows of x and y ldx and ldy floats apart. */
void ek_gpu_tower_product(ek_gpu_tower *t, const ek_gpu_matrix *m, int rows, CUdeviceptr x, int64_t ldx, CUdeviceptr y,
                          int64_t ldy);
/* Of the group, whose inputs lie at x[0 .. n_x), into rows of m->width. */
void ek_gpu_tower_products(ek_gpu_tower *t, const ek_gpu_group *m, int rows, const CUdeviceptr *x, CUdeviceptr y);

/* --- kernels between them */

/* x[] and x_norm of a stage, for the group that reads what it leaves; eps: of that norm. */
void ek_gpu_tower_stage_for(ek_cuda_tower_stage_args *a, const ek_gpu_group *m, const CUdeviceptr *x, CUdeviceptr norm,
                            float eps);
/* A kernel with a block for each row; ek_tower_gate. */
ek_cuda_grid ek_gpu_tower_row_grid(int rows, int width);
ek_cuda_grid ek_gpu_tower_gate_grid(int rows, int n);

/* Inside src/gpu/tower: the vision tower's weights on the device, and the picture at hand. */

typedef struct ek_gpu_vision_layer {
    ek_gpu_group heads, gates; /* q, k, v; gate, up */
    ek_gpu_matrix o, down;
    CUdeviceptr input_norm, q_norm, k_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm;
} ek_gpu_vision_layer;

typedef struct ek_gpu_vision {
    ek_gpu_tower t;
    const ek_vision *v;
    ek_gpu_matrix input, projection;
    ek_gpu_vision_layer *layer;
    CUdeviceptr std_bias, std_scale;
    /* of the picture */
    int n, across, down;                            /* patches, in a line and in a column */
    CUdeviceptr rgb, value, column, line, cos, sin; /* tables for each column and line */
    CUdeviceptr h, y, qkv, o, gates, pooled;        /* rows of all patches; pooled: of tokens */
    CUdeviceptr codes;                              /* of attention in integers, where gates are later */
    CUdeviceptr x[EK_GPU_TOWER_INPUTS];             /* what products read; the first holds the patches first */
} ek_gpu_vision;

/* Queue the kernels of the patches' embedding, of a layer, of soft tokens. */
void ek_gpu_vision_embed(ek_gpu_vision *x);
void ek_gpu_vision_layer_of(ek_gpu_vision *x, int layer);
void ek_gpu_vision_tokens(ek_gpu_vision *x);
/* How attention is launched. */
ek_cuda_product ek_gpu_vision_attention(const ek_gpu_vision *x);

/* Inside src/gpu/tower: the audio tower's weights on the device, and the clip at hand. */

typedef struct ek_gpu_ffw {
    ek_gpu_group up;
    ek_gpu_matrix down;
    CUdeviceptr pre, post;
} ek_gpu_ffw;

typedef struct ek_gpu_conformer_layer {
    ek_gpu_ffw ffw[2];
    ek_gpu_group heads, start; /* q, k, v; the convolution's */
    ek_gpu_matrix post, end;
    CUdeviceptr pre_attn, post_attn, out, conv_pre, conv_norm, tap, q_scale, rel_row;
} ek_gpu_conformer_layer;

typedef struct ek_gpu_conformer {
    ek_gpu_tower t;
    const ek_audio *a;
    ek_gpu_matrix conv[2], input, output, embed;
    CUdeviceptr conv_norm[2], bias;
    ek_gpu_conformer_layer *layer;
    /* of the clip: n rows, one per token */
    int frames, half, n;                            /* half: rows behind the first convolution */
    CUdeviceptr mel, window[2], map[2];             /* [frames][bins]; windows of the convolutions and what they give */
    CUdeviceptr h, y, heads, o, wide;               /* rows; wide: four times as wide */
    CUdeviceptr gate, last, x[EK_GPU_TOWER_INPUTS]; /* last: [n][output] */
} ek_gpu_conformer;

/* Queue the kernels of the convolutions, of a layer, of soft tokens. */
void ek_gpu_conformer_begin(ek_gpu_conformer *x);
void ek_gpu_conformer_layer_of(ek_gpu_conformer *x, int layer);
void ek_gpu_conformer_tokens(ek_gpu_conformer *x);

#endif
