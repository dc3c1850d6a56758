/* Whether a device has the shaders' cooperative matrices (matrices.h). Debian's headers are older than the extension,
 * so its structures are declared here. */
#ifndef EK_VULKAN_REPORTED_H
#define EK_VULKAN_REPORTED_H

#include "vulkan/state.h"

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
