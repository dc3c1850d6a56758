/* Makes SPIR-V strict: marks every float operation NoContraction (GLSL compilers omit the mark for fma and square
 * roots), and requests the device's float modes at the entry point. */
#ifndef EK_VULKAN_STRICT_H
#define EK_VULKAN_STRICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ek_vulkan_modes {
    bool rte, denormals, zeros; /* round to nearest even; keep denormals; keep signed zeros, infinities and NaN */
} ek_vulkan_modes;

/* Returns the strict form of a module of n words: malloc'ed, *n_out words. modes are those of 32-bit floats; shaders
 * have no others. NULL: the module does not have exactly one entry point. */
uint32_t *ek_vulkan_strict(const uint32_t *code, size_t n, const ek_vulkan_modes *modes, size_t *n_out);

#endif
