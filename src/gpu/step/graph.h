/* CUDA graphs: a step of few rows that all want logits is queued by one call once a step of its form has been seen. */
#ifndef EK_GPU_STEP_GRAPH_H
#define EK_GPU_STEP_GRAPH_H

#include "base/err.h"

typedef struct ek_gpu_run ek_gpu_run;

typedef ek_err ek_gpu_body(ek_gpu_run *const *x, int n);
typedef enum ek_gpu_part { EK_GPU_ALL, EK_GPU_FORWARD, EK_GPU_DRAWS } ek_gpu_part; /* of a step, that body queues */

/* Queues what body queues for n devices that have the same step, for each by a graph where one was made of a step of
 * this form: body is called for one that is recorded, and for all that are queued kernel by kernel. */
ek_err ek_gpu_replay(ek_gpu_run *const *x, int n, ek_gpu_body *body, ek_gpu_part part);
void ek_gpu_graphs_fini(ek_gpu_run *x);

#endif
