/* Inside src/model/tower: what is open, shared by tower.c and its neighbours. */
#ifndef EK_MODEL_TOWER_STATE_H
#define EK_MODEL_TOWER_STATE_H

#include "model/tower/tower_part.h"

/* One sense. */
typedef struct ek_sense {
    ek_tower_part *part; /* NULL: the model does not have it */
    ek_tower_binder bound;
    ek_weights *block; /* the memory of packed weights alone */
    bool packed, digested;
    uint64_t digest;
} ek_sense;

struct ek_towers {
    ek_towers_info info;
    ek_towers_opts opts;
    ek_tower_ops kernels;
    ek_tower_source *source; /* NULL: there is no place for towers */
    char *packed_dir;        /* NULL: what is packed is not kept */
    const char *sees;        /* use_bidirectional_attention; the source's */
    ek_sense image, sound;
};

/* Packs the sense's weights, once. ENOMEM, and EFORMAT for what is no number. */
ek_err ek_sense_load(ek_towers *t, ek_sense *s);

#endif
