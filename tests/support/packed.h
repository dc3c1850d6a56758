/* Small checkpoints as quantisers of PyTorch models write them, with random codes. */
#ifndef EK_TESTS_SUPPORT_PACKED_H
#define EK_TESTS_SUPPORT_PACKED_H

#include <stdbool.h>

#include "model/config/config.h"
#include "ops/weights/quantised_type.h"

typedef struct packed_opts {
    ek_packing packing;
    int bits, group;        /* group 0: a scale per row; -1: one for the tensor */
    const char *scale_type; /* "BF16", "F16" or "F32" */
    bool zeros;
    bool single_experts; /* a module per expert */
    bool order;          /* with a .g_idx that changes nothing */
    bool ordered;        /* with one that does */
} packed_opts;

/* Writes one set of weights twice: in the packing into dir, matrices whose shape allows it, and into hf_dir as the F32
 * values that the codes stand for. In exact mode both must give the same bits. */
void write_packed(const char *dir, const char *hf_dir, const ek_config *c, const packed_opts *o);

#endif
