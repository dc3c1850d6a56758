/* How a model is to lie on several devices, and what is to have room there beside it. */
#ifndef EK_GPU_RANKS_OPTS_H
#define EK_GPU_RANKS_OPTS_H

#include "engine/executor.h"
#include "gpu/ranks/place.h"

/* What is to have room beside the weights. */
typedef struct ek_ranks_beside {
    ek_executor_sizes step;    /* the largest step; max_rows 0: it is not known. n_pages is not read */
    double kv_bytes;           /* of keys and values of all layers, at least */
    double towers;             /* bytes that towers, and what they encode, take of the first device */
    const ek_drafter *drafter; /* that will be added to ek_ranks_drafting; NULL: none */
} ek_ranks_beside;

typedef struct ek_ranks_opts {
    int n, ordinal[EK_RANKS]; /* CUDA devices, in the order of their layers */
    ek_split split;
    const char *apart; /* by AUTO: which devices do not reach each other's memory; NULL: all do */
    bool host;         /* layers that do not fit are the CPU's; not by outputs */
    double max_bytes;  /* of each device; 0: what is free there */
    ek_host_part part; /* of them, with `host` */
    ek_ranks_beside beside;
    bool part_o;     /* for tests: nobody has all of o, whatever room there is */
    int host_layers; /* for tests: with `host`, the CPU has at least so many, or so many layers' experts */
} ek_ranks_opts;

#endif
