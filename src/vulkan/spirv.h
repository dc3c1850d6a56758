/* Rewrites SPIR-V for a device when a shader is loaded. */
#ifndef EK_VULKAN_SPIRV_H
#define EK_VULKAN_SPIRV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- cooperative matrices: products of bytes, 16 x 16 x 32, computed by a subgroup's threads together
 * (VK_KHR_cooperative_matrix). Shaders use the older GL_NV_cooperative_matrix, because Debian's glslc knows only that;
 * ek_vulkan_matrices translates its instructions to KHR's. */

/* Returns a module of n words with NV's instructions replaced by KHR's: malloc'ed, *n_out words; a module without them
 * is copied. Components are signed. A type of 32 bits is a sum; a type of bytes is the left factor if it has more
 * columns than rows, else the right one. NULL: the module is damaged, or has matrices but no unsigned type of 32 bits.
 */
uint32_t *ek_vulkan_matrices(const uint32_t *code, size_t n, size_t *n_out);

/* Whether a module has NV's instructions. */
bool ek_vulkan_has_matrix_code(const uint32_t *code, size_t n);

/* --- strict floats: marks every float operation NoContraction (GLSL compilers omit the mark for fma and square roots),
 * and requests the device's float modes at the entry point */

typedef struct ek_vulkan_modes {
    bool rte, denormals, zeros; /* round to nearest even; keep denormals; keep signed zeros, infinities and NaN */
} ek_vulkan_modes;

/* Returns the strict form of a module of n words: malloc'ed, *n_out words. modes are those of 32-bit floats; shaders
 * have no others. NULL: the module does not have exactly one entry point. */
uint32_t *ek_vulkan_strict(const uint32_t *code, size_t n, const ek_vulkan_modes *modes, size_t *n_out);

#endif
