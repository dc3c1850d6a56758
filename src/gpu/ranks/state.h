/* What is open over several devices, shared by the files of src/gpu/ranks. */
#ifndef EK_GPU_RANKS_STATE_H
#define EK_GPU_RANKS_STATE_H

#include "gpu/gpu.h"
#include "gpu/ranks/place.h"

typedef struct ek_ranks ek_ranks;

struct ek_ranks {
    ek_model *m;
    ek_place place;
    int n; /* devices */
    ek_gpu *gpu[EK_RANKS];
    double max_bytes;
    int min_piece;                    /* for tests; 0: as it is */
    uint64_t turns;                   /* for tests: steps whose sequences went through the devices in turns */
    uint64_t prompts_ahead;           /* for tests: steps with prompts begun behind others */
    struct ek_gpu_run *run[EK_RANKS]; /* for tests: by outputs, of the executor that was made last */
    char text[1024];
};

#endif
