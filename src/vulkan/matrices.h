/* Cooperative matrices: products of bytes, 16 x 16 x 32, by the threads of a subgroup together
 * (VK_KHR_cooperative_matrix). Shaders are written with GL_NV_cooperative_matrix, its elder brother, which Debian's
 * glslc knows; ek_vulkan_matrices makes KHR's instructions of those. */
#ifndef EK_VULKAN_MATRICES_H
#define EK_VULKAN_MATRICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns a module of n words with KHR's instructions for NV's: malloc'ed, *n_out words; one without any as it is.
 * Components are signed; a type of 32 bits is a sum, one of bytes is the left factor if it has more columns than rows,
 * else the right one. NULL: the module is damaged, or has matrices but no type of 32 bits without sign. */
uint32_t *ek_vulkan_matrices(const uint32_t *code, size_t n, size_t *n_out);

/* Whether a module has NV's instructions. */
bool ek_vulkan_has_matrix_code(const uint32_t *code, size_t n);

#endif
