/* The machine code built into this program, and the choice of a device's code. Code of a capability runs on later ones
 * with the same first number (8.0 on 8.6) and on no other. No driver translates code anew, because that could change
 * bits (no PTX is built in). */
#ifndef EK_CUDA_CODE_H
#define EK_CUDA_CODE_H

#include <stdbool.h>
#include <stddef.h>

/* The modules of kernels that kernels.S embeds; none in a build without nvcc. */
typedef struct ek_cuda_module {
    const char *name;
    const void *fatbin;
    size_t bytes;
    int code;     /* the code's compute capability times ten: 80, 90; 0: any (tests) */
    int features; /* the capability whose instructions it uses; another one than code for tests of that one's kernels */
} ek_cuda_module;
extern const ek_cuda_module ek_cuda_modules[]; /* ends with name NULL */
extern const int ek_cuda_built_with;           /* version of the toolkit as 1000 major + 10 minor; 0: no kernels */

/* A device runs the modules with m->code == code and m->features == features. */
typedef struct ek_cuda_code {
    int code, features;
} ek_cuda_code;

/* Chooses the code for a device's capability; features: the capability to which it is limited, 0: none. False: there is
 * no code. */
bool ek_cuda_code_pick(ek_cuda_code *out, const ek_cuda_module *modules, int capability, int features);

/* Whether a build can have code for it (tools/make/cuda.mk, CUDA_ARCHS=all). */
bool ek_cuda_code_exists(int capability);

/* "8.0 to 8.9 and 9.0": the capabilities on which the modules run. */
void ek_cuda_code_text(char *out, size_t size, const ek_cuda_module *modules);

#endif
