/* The form of a step, and the graph that was made of one (gpu/step/graph.h). */
#ifndef EK_GPU_STEP_FORM_H
#define EK_GPU_STEP_FORM_H

#include "cuda/api.h"

enum { EK_GPU_GRAPHS = 96, EK_GPU_FORM = 32 };

/* All of a step that the arguments of its kernels hold. */
typedef struct ek_gpu_form {
    uint64_t value[EK_GPU_FORM];
    int n;
} ek_gpu_form;

typedef struct ek_gpu_graph {
    ek_gpu_form form;
    CUgraphExec exec; /* NULL: seen once */
    uint64_t used;    /* the step that used it last; 0: never */
} ek_gpu_graph;

#endif
