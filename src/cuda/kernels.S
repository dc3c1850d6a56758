/* The kernels as bytes of this program, and the table of them (cuda/driver.h). tools/make/cuda.mk defines
 * EK_CUDA_BUILT_WITH where nvcc built them, and the assembler's path leads to the fatbins. */
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
.macro image name
    .balign 64
.Limage_\name:
    .incbin "\name\().fatbin"
.Lend_\name:
    .byte 0
.Lname_\name:
    .asciz "\name"
.endm
    image rows
    image kv_store
    image attn
    image attn_prompt
    image sample
    image product
    image product_tile
    image product_wide
    image product_f
    image products
    image product_leaf
    image stage

.macro entry name
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
    entry rows
    entry kv_store
    entry attn
    entry attn_prompt
    entry sample
    entry product
    entry product_tile
    entry product_wide
    entry product_f
    entry products
    entry product_leaf
    entry stage
#endif
    .quad 0, 0, 0
    .size ek_cuda_modules, . - ek_cuda_modules

    .section .note.GNU-stack, "", %progbits
