/* Models without values, for tests of what a step queues: shapes and places alone, in the shapes that are published. */
#ifndef EK_TESTS_GPU_SHAPES_H
#define EK_TESTS_GPU_SHAPES_H

#include "model/pass.h"

typedef struct gpu_shape {
    const char *name;  /* of launches.def */
    const char *model; /* published, or tiny where it has a capital letter */
    int layers;
    const char *type, *heads; /* of matrices; of k and v, if that is another */
    ek_kv_format kv;
    int kv_start, multiprocessors;
    bool host_table; /* per-layer embeddings stay on the host */
    int drafter;     /* 0: none; 1: with a dense head, else of so many centroids */
} gpu_shape;

/* The weights are nowhere: nothing may compute with them. */
ek_model *open_shape(const gpu_shape *s);
void close_shape(ek_model *m);

#endif
