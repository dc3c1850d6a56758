/* Whether a device has the cooperative matrices of the shaders (matrices.h). Debian's headers are older than the
 * extension: its structures are declared here. */
#ifndef EK_VULKAN_REPORTED_H
#define EK_VULKAN_REPORTED_H

#include "vulkan/state.h"

#define EK_VULKAN_MATRICES "VK_KHR_cooperative_matrix"

/* VkPhysicalDeviceCooperativeMatrixFeaturesKHR */
typedef struct ek_vulkan_matrix_features {
    VkStructureType type;
    void *next;
    VkBool32 matrices, checked; /* checked: of addresses behind a buffer's end */
} ek_vulkan_matrix_features;
enum { EK_VULKAN_MATRIX_FEATURES = 1000506000 };

/* Products of signed bytes, 16 x 16 x 32, added in 32 bits, by subgroups of 32, and the memory model that they need. */
bool ek_vulkan_has_matrices(const ek_vulkan_loader *l, VkPhysicalDevice d);

#endif
