/* Inside src/model/tower: the open towers, for tower.c and its neighbours. */
#ifndef EK_MODEL_TOWER_STATE_H
#define EK_MODEL_TOWER_STATE_H

#include "model/tower/tower_part.h"

/* One sense. */
typedef struct ek_sense {
    ek_tower_part *part; /* NULL: the model lacks this sense */
    ek_tower_binder bound;
    ek_weights *block; /* only its memory of packed weights is used */
    bool packed, digested;
    uint64_t digest;
} ek_sense;

struct ek_towers {
    ek_towers_info info;
    ek_towers_opts opts;
    ek_tower_ops kernels;
    ek_tower_source *source; /* NULL: the container has no towers */
    char *packed_dir;        /* NULL: packed weights are not kept */
    const char *sees;        /* use_bidirectional_attention; borrowed from the source */
    ek_sense image, sound;
};

/* Packs the sense's weights, once. ENOMEM; EFORMAT for weights that are not finite. */
ek_err ek_sense_load(ek_towers *t, ek_sense *s);

#endif
