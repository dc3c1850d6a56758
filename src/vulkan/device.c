/* A device: its requirements and features, and how it is opened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "vulkan/state.h"

/* The properties and features that a device reports. */
typedef struct said {
    VkPhysicalDeviceVulkan11Properties p11;
    VkPhysicalDeviceVulkan12Properties p12;
    VkPhysicalDeviceMaintenance3Properties m3;
    VkPhysicalDeviceMaintenance4Properties m4;
    VkPhysicalDeviceProperties2 properties;
    VkPhysicalDeviceVulkan13Features f13;
    VkPhysicalDeviceVulkan12Features f12;
    VkPhysicalDeviceVulkan11Features f11;
    VkPhysicalDeviceFeatures2 features;
} said;

static void ask(said *s, const ek_vulkan_loader *l, VkPhysicalDevice d)
{
    *s = (said){.p11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
                .p12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES,
                .m3.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES,
                .m4.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES,
                .properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                .f13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
                .f12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                .f11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                .features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    s->properties.pNext = &s->m3, s->m3.pNext = &s->p12, s->p12.pNext = &s->p11;
    s->features.pNext = &s->f11, s->f11.pNext = &s->f12, s->f12.pNext = &s->f13;
    l->GetPhysicalDeviceProperties2(d, &s->properties);
    if (s->properties.properties.apiVersion < VK_API_VERSION_1_3)
        return; /* older devices know none of the structures below */
    s->p12.pNext = &s->m4;
    l->GetPhysicalDeviceProperties2(d, &s->properties);
    l->GetPhysicalDeviceFeatures2(d, &s->features);
}

/* The first queue family that can compute; -1: there is none. */
static int family_of(const ek_vulkan_loader *l, VkPhysicalDevice d)
{
    VkQueueFamilyProperties list[32];
    uint32_t n = 32;
    int found = -1;
    l->GetPhysicalDeviceQueueFamilyProperties(d, &n, list);
    for (uint32_t i = 0; i < n; i++)
        if (list[i].queueFlags & VK_QUEUE_COMPUTE_BIT && found < 0) found = (int)i;
    return found;
}

enum { SHARED = 32768, INVOCATIONS = 512 };

ek_err ek_vulkan_check_device(int ordinal)
{
    const ek_vulkan_loader *l;
    char name[512], lacks[512] = "";
    said s;
    EK_TRY(ek_vulkan_open_loader(&l));
    ask(&s, l, l->device[ordinal]);
    const VkPhysicalDeviceLimits *limits = &s.properties.properties.limits;
    const struct {
        bool there;
        const char *what;
    } needs[] = {
        {s.properties.properties.apiVersion >= VK_API_VERSION_1_3, "Vulkan 1.3"},
        {s.f13.shaderIntegerDotProduct, "products of packed bytes"},
        {s.f12.bufferDeviceAddress, "64-bit addresses of buffers"},
        {s.f12.timelineSemaphore, "timeline semaphores"},
        {s.f12.scalarBlockLayout, "scalar block layouts"},
        {s.f12.storageBuffer8BitAccess, "8-bit storage"},
        {s.f11.storageBuffer16BitAccess, "16-bit storage"},
        {s.f12.shaderInt8, "8-bit integers"},
        {s.features.features.shaderInt16, "16-bit integers"},
        {s.features.features.shaderInt64, "64-bit integers"},
        {(s.p11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) &&
             (s.p11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT),
         "sums of subgroups"},
        {limits->maxComputeSharedMemorySize >= SHARED, "32 KB of shared memory"},
        {limits->maxComputeWorkGroupInvocations >= INVOCATIONS, "workgroups of 512"},
        {family_of(l, l->device[ordinal]) >= 0, "a queue that computes"},
    };
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        const size_t n = strlen(lacks);
        if (!needs[i].there) snprintf(lacks + n, sizeof lacks - n, "%s%s", n ? ", " : "", needs[i].what);
    }
    if (!lacks[0]) return EK_OK;
    ek_vulkan_name(l, ordinal, name, sizeof name);
    return ek_fail(EK_EUNSUPPORTED, "vulkan:%d (%s) lacks %s", ordinal, name, lacks);
}

static bool has_extension(const ek_vulkan_loader *l, VkPhysicalDevice d, const char *name)
{
    uint32_t n = 0;
    bool found = false;
    if (l->EnumerateDeviceExtensionProperties(d, NULL, &n, NULL) != VK_SUCCESS) return false;
    VkExtensionProperties *list = ek_alloc(sizeof *list * (n + 1));
    if (l->EnumerateDeviceExtensionProperties(d, NULL, &n, list) == VK_SUCCESS)
        for (uint32_t i = 0; i < n; i++) found |= !strcmp(list[i].extensionName, name);
    free(list);
    return found;
}

/* VK_KHR_cooperative_matrix; Debian's headers are older than the extension. */
#define MATRICES "VK_KHR_cooperative_matrix"

/* VkPhysicalDeviceCooperativeMatrixFeaturesKHR */
typedef struct matrix_features {
    VkStructureType type;
    void *next;
    VkBool32 matrices, checked; /* checked: robust access beyond a buffer's end */
} matrix_features;
enum { MATRIX_FEATURES = 1000506000 };

/* VkCooperativeMatrixPropertiesKHR, with the meaning of its numbers. */
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
    forms_of get;
    uint32_t n = 0;
    bool any = false;
    memcpy(&get, &l->matrix_forms, sizeof get);
    if (!get || get(d, &n, NULL) != VK_SUCCESS || !n) return false;
    form *const list = ek_alloc(sizeof *list * n);
    for (uint32_t i = 0; i < n; i++) list[i].type = (VkStructureType)FORM;
    if (get(d, &n, list) == VK_SUCCESS)
        for (uint32_t i = 0; i < n; i++) any |= fits(&list[i]);
    free(list);
    return any;
}

bool ek_vulkan_has_matrices(const ek_vulkan_loader *l, VkPhysicalDevice d)
{
    if (!has_extension(l, d, MATRICES)) return false;
    matrix_features matrices = {.type = (VkStructureType)MATRIX_FEATURES};
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

static VkResult make_device(ek_vulkan *v)
{
    const float priority = 1;
    const char *extension[2];
    uint32_t n = 0;
    v->budget = has_extension(v->loader, v->physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    if (v->budget) extension[n++] = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    v->matrices = ek_vulkan_has_matrices(v->loader, v->physical);
    if (v->matrices) extension[n++] = MATRICES;
    matrix_features matrices = {.type = (VkStructureType)MATRIX_FEATURES, .matrices = VK_TRUE};
    const int family = family_of(v->loader, v->physical);
    VkPhysicalDeviceVulkan13Features f13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
                                            .pNext = v->matrices ? &matrices : NULL,
                                            .synchronization2 = VK_TRUE,
                                            .shaderIntegerDotProduct = VK_TRUE};
    VkPhysicalDeviceVulkan12Features f12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                            .pNext = &f13,
                                            .bufferDeviceAddress = VK_TRUE,
                                            .timelineSemaphore = VK_TRUE,
                                            .scalarBlockLayout = VK_TRUE,
                                            .storageBuffer8BitAccess = VK_TRUE,
                                            .shaderInt8 = VK_TRUE,
                                            .vulkanMemoryModel = v->matrices};
    VkPhysicalDeviceVulkan11Features f11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                                            .pNext = &f12,
                                            .storageBuffer16BitAccess = VK_TRUE};
    const VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                                .pNext = &f11,
                                                .features = {.shaderInt16 = VK_TRUE, .shaderInt64 = VK_TRUE}};
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = (uint32_t)family,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &features,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = n,
                                     .ppEnabledExtensionNames = extension};
    const VkResult r = v->loader->CreateDevice(v->physical, &info, NULL, &v->device);
    if (r != VK_SUCCESS) return r;
#define VK(name)                                                                 \
    v->name = (PFN_vk##name)v->loader->GetDeviceProcAddr(v->device, "vk" #name); \
    if (!v->name) return VK_ERROR_EXTENSION_NOT_PRESENT;
    EK_VULKAN_DEVICE_FUNCTIONS(VK)
#undef VK
    v->GetDeviceQueue(v->device, (uint32_t)family, 0, &v->queue);
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .queueFamilyIndex = (uint32_t)family};
    return v->CreateCommandPool(v->device, &pool, NULL, &v->pool);
}

static VkResult make_rest(ek_vulkan *v)
{
    const VkDescriptorSetLayoutBinding args = {.descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC,
                                               .descriptorCount = 1,
                                               .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    const VkDescriptorSetLayoutCreateInfo set = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = 1, .pBindings = &args};
    const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(uint64_t)};
    const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                               .setLayoutCount = 1,
                                               .pSetLayouts = &v->set_layout,
                                               .pushConstantRangeCount = 1,
                                               .pPushConstantRanges = &range};
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VkResult r = v->CreateDescriptorSetLayout(v->device, &set, NULL, &v->set_layout);
    if (r == VK_SUCCESS) r = v->CreatePipelineLayout(v->device, &layout, NULL, &v->layout);
    return r != VK_SUCCESS ? r : v->CreateSemaphore(v->device, &semaphore, NULL, &v->semaphore);
}

static void note_modes(ek_vulkan *v, const said *s)
{
    const VkPhysicalDeviceVulkan12Properties *p = &s->p12;
    v->modes.rte = p->shaderRoundingModeRTEFloat32;
    v->modes.denormals = p->shaderDenormPreserveFloat32;
    v->modes.zeros = p->shaderSignedZeroInfNanPreserveFloat32;
}

VkResult ek_vulkan_open(ek_vulkan **out, const ek_vulkan_loader *l, int ordinal)
{
    ek_vulkan *v = ek_alloc(sizeof *v);
    said s;
    v->loader = l, v->ordinal = ordinal, v->physical = l->device[ordinal];
    ask(&s, l, v->physical);
    note_modes(v, &s);
    VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    l->GetPhysicalDeviceMemoryProperties2(v->physical, &memory);
    v->memory = memory.memoryProperties;
    v->max_block = s.m4.maxBufferSize < s.m3.maxMemoryAllocationSize ? s.m4.maxBufferSize
                                                                     : s.m3.maxMemoryAllocationSize;
    memcpy(v->max_grid, s.properties.properties.limits.maxComputeWorkGroupCount, sizeof v->max_grid);
    v->max_threads = s.properties.properties.limits.maxComputeWorkGroupInvocations;
    if (v->max_threads > s.properties.properties.limits.maxComputeWorkGroupSize[0])
        v->max_threads = s.properties.properties.limits.maxComputeWorkGroupSize[0];
    VkResult r = make_device(v);
    if (r == VK_SUCCESS) r = make_rest(v);
    if (r == VK_SUCCESS) r = ek_vulkan_choose_arithmetic(v);
    if (r == VK_SUCCESS) *out = v;
    else ek_vulkan_close(v);
    return r;
}

void ek_vulkan_close(ek_vulkan *v)
{
    if (!v) return;
    if (v->device && v->DestroyDevice) {
        if (v->DeviceWaitIdle) v->DeviceWaitIdle(v->device);
        while (v->streams) ek_vulkan_close_stream(v->streams);
        for (int i = 0; i < EK_VULKAN_SHADERS * 2; i++)
            if (v->pipeline[i]) v->DestroyPipeline(v->device, v->pipeline[i], NULL);
        ek_vulkan_free_chunks(v);
        while (v->n_blocks) {
            ek_vulkan_block b = v->block[--v->n_blocks];
            ek_vulkan_give(v, &b);
        }
        for (int i = 0; i < v->n_host; i++) {
            ek_vulkan_give(v, v->host[i]);
            free(v->host[i]);
        }
        if (v->layout) v->DestroyPipelineLayout(v->device, v->layout, NULL);
        if (v->set_layout) v->DestroyDescriptorSetLayout(v->device, v->set_layout, NULL);
        if (v->semaphore) v->DestroySemaphore(v->device, v->semaphore, NULL);
        if (v->pool) v->DestroyCommandPool(v->device, v->pool, NULL);
        v->DestroyDevice(v->device, NULL);
    }
    free(v->block), free(v->host);
    free(v);
}
