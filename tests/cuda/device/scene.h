/* A sequence with keys and values in pages, on the host and on the device alike. */
#ifndef EK_TESTS_CUDA_SCENE_H
#define EK_TESTS_CUDA_SCENE_H

#include "dev.h"
#include "ops/attn/attn.h"

typedef struct scene {
    dev *d;
    ek_attn_shape shape;
    ek_attn *cpu; /* scalar */
    int n_views, n_keys, pages_per_view;
    size_t block, page_bytes, offset; /* of a page: a block of garbage in front of the layer's */
    uint8_t *host;
    int32_t *page; /* numbers, view by view */
    ek_kv_view *view;
    CUdeviceptr mem, table;
} scene;

/* Pages full of garbage (0: NaN, 1: random) with n_keys random tokens in each view, and a copy on the device. */
void scene_open(scene *s, dev *d, const ek_attn_shape *shape, int n_views, int n_keys, int garbage, uint64_t seed);
void scene_close(scene *s);
ek_cuda_kv scene_kv(const scene *s);

#endif
