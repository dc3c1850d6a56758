/* Cooperative matrices: products of bytes, 16 x 16 x 32, computed by a subgroup's threads together
 * (VK_KHR_cooperative_matrix). Shaders use the older GL_NV_cooperative_matrix, because Debian's glslc knows only that;
 * ek_vulkan_matrices translates its instructions to KHR's. */
#ifndef EK_VULKAN_MATRICES_H
#define EK_VULKAN_MATRICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vulkan/state.h"

/* Returns a module of n words with NV's instructions replaced by KHR's: malloc'ed, *n_out words; a module without them
 * is copied. Components are signed. A type of 32 bits is a sum; a type of bytes is the left factor if it has more
 * columns than rows, else the right one. NULL: the module is damaged, or has matrices but no unsigned type of 32 bits.
 */
uint32_t *ek_vulkan_matrices(const uint32_t *code, size_t n, size_t *n_out);

/* Whether a module has NV's instructions. */
bool ek_vulkan_has_matrix_code(const uint32_t *code, size_t n);

/* --- whether a device has them; Debian's headers are older than the extension */

#define EK_VULKAN_MATRICES "VK_KHR_cooperative_matrix"

/* VkPhysicalDeviceCooperativeMatrixFeaturesKHR */
typedef struct ek_vulkan_matrix_features {
    VkStructureType type;
    void *next;
    VkBool32 matrices, checked; /* checked: robust access beyond a buffer's end */
} ek_vulkan_matrix_features;
enum { EK_VULKAN_MATRIX_FEATURES = 1000506000 };

/* Whether d multiplies signed bytes, 16 x 16 x 32, with 32-bit sums, in subgroups of 32, and has the memory model for
 * it.
 */
bool ek_vulkan_has_matrices(const ek_vulkan_loader *l, VkPhysicalDevice d);

#endif
