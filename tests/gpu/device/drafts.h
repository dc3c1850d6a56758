#ifndef EK_TESTS_GPU_DEVICE_DRAFTS_H
#define EK_TESTS_GPU_DEVICE_DRAFTS_H

#include "gpu/gpu.h"

/* Prints the times of a published shape cut to so many layers (0: all). 1 after an error. */
int time_drafts(const char *name, int layers);

#endif
