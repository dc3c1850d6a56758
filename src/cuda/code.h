/* The machine code that is built into this program, and which of it a device runs. Code of a capability runs on later
 * ones of the same first number (8.0 on 8.6), on no other, and no driver makes code anew: none would keep to the bits
 * (no PTX is built in). */
#ifndef EK_CUDA_CODE_H
#define EK_CUDA_CODE_H

#include <stdbool.h>
#include <stddef.h>

/* Modules of kernels: what kernels.S embeds, or none in a build without nvcc. */
typedef struct ek_cuda_module {
    const char *name;
    const void *fatbin;
    size_t bytes;
    int code;     /* the compute capability that it is code for, ten times: 80, 90; 0: any (tests) */
    int features; /* whose instructions it keeps to: code, or others, to try on a device what another one runs */
} ek_cuda_module;
extern const ek_cuda_module ek_cuda_modules[]; /* ends with name NULL */
extern const int ek_cuda_built_with;           /* version of the toolkit as 1000 major + 10 minor; 0: no kernels */

/* The modules that a device runs are those with m->code == code and m->features == features. */
typedef struct ek_cuda_code {
    int code, features;
} ek_cuda_code;

/* For a device of that capability; features: that it is to keep to, 0: all. False: there are none. */
bool ek_cuda_code_pick(ek_cuda_code *out, const ek_cuda_module *modules, int capability, int features);

/* Whether a build could have code for it (tools/make/cuda.mk, CUDA_ARCHS=all). */
bool ek_cuda_code_exists(int capability);

/* "8.0 to 8.9 and 9.0": the capabilities that the modules run on. */
void ek_cuda_code_text(char *out, size_t size, const ek_cuda_module *modules);

#endif
