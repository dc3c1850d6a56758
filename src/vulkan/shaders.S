/* The shaders as bytes of this program, and the table of them (vulkan/state.h). tools/make/vulkan.mk writes shaders.inc,
 * a line `shader NAME` for each file of src/vulkan/shaders, and leads the assembler's path to it and to hard/NAME.spv
 * and soft/NAME.spv. */
    .section .rodata
.macro shader name
    .balign 64
.Lhard_\name:
    .incbin "hard/\name\().spv"
.Lhard_end_\name:
    .balign 64
.Lsoft_\name:
    .incbin "soft/\name\().spv"
.Lsoft_end_\name:
    .byte 0
.Lname_\name:
    .asciz "\name"
.endm
#include "shaders.inc"

    .purgem shader
.macro shader name
    .quad .Lname_\name, .Lhard_\name, .Lsoft_\name
    .quad .Lhard_end_\name - .Lhard_\name, .Lsoft_end_\name - .Lsoft_\name
.endm

    .section .data.rel.ro, "aw"
    .globl ek_vulkan_shaders
    .hidden ek_vulkan_shaders
    .type ek_vulkan_shaders, %object
    .balign 8
ek_vulkan_shaders:
#include "shaders.inc"
    .quad 0, 0, 0, 0, 0
    .size ek_vulkan_shaders, . - ek_vulkan_shaders

    .section .note.GNU-stack, "", %progbits
