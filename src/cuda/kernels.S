/* The kernels as bytes of this program, and the table of them (cuda/driver.h). tools/make/cuda.mk defines
 * EK_CUDA_BUILT_WITH where nvcc built them, and the assembler's path leads to the fatbins and to kernels.inc, which it
 * writes: a line `kernel NAME` for each of them. */
#ifndef EK_CUDA_BUILT_WITH
#define EK_CUDA_BUILT_WITH 0
#endif

    .section .rodata
    .globl ek_cuda_built_with
    .hidden ek_cuda_built_with
    .type ek_cuda_built_with, %object
    .balign 4
ek_cuda_built_with:
    .long EK_CUDA_BUILT_WITH
    .size ek_cuda_built_with, 4

#if EK_CUDA_BUILT_WITH
.macro kernel name
    .balign 64
.Limage_\name:
    .incbin "\name\().fatbin"
.Lend_\name:
    .byte 0
.Lname_\name:
    .asciz "\name"
.endm
#include "kernels.inc"

    .purgem kernel
.macro kernel name
    .quad .Lname_\name, .Limage_\name, .Lend_\name - .Limage_\name
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
    .quad 0, 0, 0
    .size ek_cuda_modules, . - ek_cuda_modules

    .section .note.GNU-stack, "", %progbits
