/* The kernels as bytes of this program, and the table of them (cuda/driver.h). tools/make/cuda.mk defines
 * EK_CUDA_BUILT_WITH where nvcc built them, and the assembler's path leads to the fatbins and to kernels.inc, which it
 * writes: a line `kernel ARCHITECTURE NAME CODE FEATURES` for each of them. */
#ifndef EK_CUDA_BUILT_WITH
#define EK_CUDA_BUILT_WITH 0
#endif

#ifdef __APPLE__ /* it has no such cards */
    .section __DATA,__const
    .globl _ek_cuda_built_with, _ek_cuda_modules
    .p2align 3
_ek_cuda_built_with:
    .quad 0
_ek_cuda_modules:
    .quad 0, 0, 0, 0
#else
    .section .rodata
    .globl ek_cuda_built_with
    .hidden ek_cuda_built_with
    .type ek_cuda_built_with, %object
    .balign 4
ek_cuda_built_with:
    .long EK_CUDA_BUILT_WITH
    .size ek_cuda_built_with, 4

#if EK_CUDA_BUILT_WITH
.macro kernel arch name code features
    .balign 64
.Limage_\arch\()_\name:
    .incbin "\arch\()/\name\().fatbin"
.Lend_\arch\()_\name:
    .byte 0
.Lname_\arch\()_\name:
    .asciz "\name"
.endm
#include "kernels.inc"

    .purgem kernel
.macro kernel arch name code features
    .quad .Lname_\arch\()_\name, .Limage_\arch\()_\name, .Lend_\arch\()_\name - .Limage_\arch\()_\name
    .long \code, \features
.endm
#endif

    .section .data.rel.ro, "aw"
    .globl ek_cuda_modules
    .hidden ek_cuda_modules
    .type ek_cuda_modules, %object
    .balign 8
ek_cuda_modules:
#if EK_CUDA_BUILT_WITH
#include "kernels.inc"
#endif
    .quad 0, 0, 0, 0
    .size ek_cuda_modules, . - ek_cuda_modules

    .section .note.GNU-stack, "", %progbits
#endif
