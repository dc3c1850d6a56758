#include "vulkan/reported.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* VkCooperativeMatrixPropertiesKHR, and what its numbers mean. */
typedef struct form {
    VkStructureType type;
    void *next;
    uint32_t m, n, k;
    int32_t a, b, c, result;
    VkBool32 saturates;
    int32_t scope;
} form;
enum { FORM = 1000506001, SINT8 = 3, SINT32 = 5, SUBGROUP = 3, M = 16, N = 16, K = 32, THREADS = 32 };
typedef VkResult(VKAPI_PTR *forms_of)(VkPhysicalDevice, uint32_t *, form *);

static bool fits(const form *f)
{
    return f->m == M && f->n == N && f->k == K && f->a == SINT8 && f->b == SINT8 && f->c == SINT32 &&
           f->result == SINT32 && !f->saturates && f->scope == SUBGROUP;
}

static bool has_form(const ek_vulkan_loader *l, VkPhysicalDevice d)
{
    forms_of ask;
    uint32_t n = 0;
    bool found = false;
    memcpy(&ask, &l->matrix_forms, sizeof ask);
    if (!ask || ask(d, &n, NULL) != VK_SUCCESS || !n) return false;
    form *const list = ek_alloc(sizeof *list * n);
    for (uint32_t i = 0; i < n; i++) list[i].type = (VkStructureType)FORM;
    if (ask(d, &n, list) == VK_SUCCESS)
        for (uint32_t i = 0; i < n; i++) found |= fits(&list[i]);
    free(list);
    return found;
}

bool ek_vulkan_has_matrices(const ek_vulkan_loader *l, VkPhysicalDevice d)
{
    if (!ek_vulkan_has_extension(l, d, EK_VULKAN_MATRICES)) return false;
    ek_vulkan_matrix_features matrices = {.type = (VkStructureType)EK_VULKAN_MATRIX_FEATURES};
    VkPhysicalDeviceVulkan12Features f12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                            .pNext = &matrices};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &f12};
    VkPhysicalDeviceVulkan11Properties p11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &p11};
    l->GetPhysicalDeviceFeatures2(d, &features);
    l->GetPhysicalDeviceProperties2(d, &p);
    return matrices.matrices && f12.vulkanMemoryModel && p11.subgroupSize == THREADS &&
           p.properties.limits.maxComputeSharedMemorySize >= EK_VULKAN_MATRIX_SHARED && has_form(l, d);
}
