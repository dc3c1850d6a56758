/* SPIR-V as a driver must keep to it: every operation on floats is marked NoContraction, which compilers of GLSL leave
 * out for fma and square roots, and the entry point asks for the float modes that the device has. */
#ifndef EK_VULKAN_STRICT_H
#define EK_VULKAN_STRICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ek_vulkan_modes {
    bool rte, denormals, zeros; /* round to nearest even; keep denormals; keep signed zeros, infinities and NaN */
} ek_vulkan_modes;

/* The module of n words so marked, malloc'ed, *n_out words; modes: of 32 bits, the only floats of shaders. NULL: it is
 * no module of one entry point. */
uint32_t *ek_vulkan_strict(const uint32_t *code, size_t n, const ek_vulkan_modes *modes, size_t *n_out);

#endif
