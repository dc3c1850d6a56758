/* The members of an open device, only for driver.c and memory.c. Other files use cuda/driver.h. */
#ifndef EK_CUDA_STATE_H
#define EK_CUDA_STATE_H

#include <stdbool.h>

#include "cuda/api.h"
#include "cuda/chip.h"

struct ek_cuda {
    ek_cuda_api f;
    int ordinal;
    CUdevice device;
    CUcontext context;
    CUstream stream, beside; /* beside: NULL until its first use */
    CUmodule *module;        /* [n_modules] */
    int n_modules;
    ek_cuda_code code; /* the code of the loaded modules */
    ek_cuda_chip chip;
    const char *last; /* the last queued kernel */
    bool broken;
    char first[512]; /* the sentence of the error that broke the device */
    char text[200], card[200];
    ek_cuda_times times; /* the chip's times, if they were set */
};

/* ek_cuda_check of a driver's function, which a broken device does not call. */
#define EK_CUDA_CALL(c, doing, function, ...) \
    ek_cuda_check(c, (c)->broken ? EK_CU_OK : (c)->f.function(__VA_ARGS__), doing)

#endif
