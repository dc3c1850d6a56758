/* A Vulkan layer that makes more of the device that is there: check_vulkan.sh compiles it and lets the loader put it in
 * front of lavapipe. The device is then a card; there are LAYER_CARDS of it (1); it gives at most LAYER_BLOCK bytes of
 * memory at once (what it gives without); and launch LAYER_SKIP computes nothing (none). Vulkan Loader,
 * LoaderLayerInterface.md. */
#include <stdlib.h>
#include <string.h>

#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

static PFN_vkGetInstanceProcAddr next_of_instance;
static PFN_vkGetDeviceProcAddr next_of_device;
static PFN_vkEnumeratePhysicalDevices next_enumerate;
static PFN_vkGetPhysicalDeviceProperties2 next_properties;
static PFN_vkCmdDispatch next_dispatch;
static VkInstance instance;

static unsigned long long number(const char *name, unsigned long long otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static VKAPI_ATTR VkResult VKAPI_CALL enumerate(VkInstance of, uint32_t *n, VkPhysicalDevice *out)
{
    uint32_t one = 1;
    VkPhysicalDevice device;
    const uint32_t all = (uint32_t)number("LAYER_CARDS", 1), room = *n;
    const VkResult r = next_enumerate(of, &one, &device);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) return r;
    *n = out && room < all ? room : all;
    for (uint32_t i = 0; out && i < *n; i++) out[i] = device;
    return out && *n < all ? VK_INCOMPLETE : VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL properties(VkPhysicalDevice device, VkPhysicalDeviceProperties2 *p)
{
    next_properties(device, p);
    p->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    for (VkBaseOutStructure *s = p->pNext; s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES) {
            VkPhysicalDeviceMaintenance3Properties *m = (void *)s;
            m->maxMemoryAllocationSize = number("LAYER_BLOCK", m->maxMemoryAllocationSize);
        }
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *a,
                                                      VkInstance *out)
{
    VkLayerInstanceCreateInfo *link = (void *)info->pNext;
    while (link->sType != VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO || link->function != VK_LAYER_LINK_INFO)
        link = (void *)link->pNext;
    next_of_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const VkResult r = ((PFN_vkCreateInstance)next_of_instance(NULL, "vkCreateInstance"))(info, a, out);
    if (r != VK_SUCCESS) return r;
    instance = *out;
    next_enumerate = (PFN_vkEnumeratePhysicalDevices)next_of_instance(*out, "vkEnumeratePhysicalDevices");
    next_properties = (PFN_vkGetPhysicalDeviceProperties2)next_of_instance(*out, "vkGetPhysicalDeviceProperties2");
    return r;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice of, const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *a, VkDevice *out)
{
    VkLayerDeviceCreateInfo *link = (void *)info->pNext;
    while (link->sType != VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO || link->function != VK_LAYER_LINK_INFO)
        link = (void *)link->pNext;
    const PFN_vkGetInstanceProcAddr next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    next_of_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    return ((PFN_vkCreateDevice)next(instance, "vkCreateDevice"))(of, info, a, out);
}

static VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer to, uint32_t x, uint32_t y, uint32_t z)
{
    static unsigned long long launched;
    if (++launched != number("LAYER_SKIP", 0)) next_dispatch(to, x, y, z);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_device(VkDevice device, const char *name)
{
    const PFN_vkVoidFunction f = next_of_device(device, name);
    if (strcmp(name, "vkCmdDispatch")) return f;
    next_dispatch = (PFN_vkCmdDispatch)f;
    return (PFN_vkVoidFunction)dispatch;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_instance(VkInstance of, const char *name)
{
    static const struct {
        const char *name;
        PFN_vkVoidFunction own;
    } all[] = {{"vkGetInstanceProcAddr", (PFN_vkVoidFunction)of_instance},
               {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)of_device},
               {"vkCreateInstance", (PFN_vkVoidFunction)create_instance},
               {"vkCreateDevice", (PFN_vkVoidFunction)create_device},
               {"vkEnumeratePhysicalDevices", (PFN_vkVoidFunction)enumerate},
               {"vkGetPhysicalDeviceProperties2", (PFN_vkVoidFunction)properties}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i].name)) return all[i].own;
    return of && next_of_instance ? next_of_instance(of, name) : NULL;
}

__attribute__((visibility("default"))) VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *p)
{
    p->loaderLayerInterfaceVersion = 2;
    p->pfnGetInstanceProcAddr = of_instance;
    p->pfnGetDeviceProcAddr = of_device;
    p->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
