/* Opens libvulkan.so.1 at run time, and lists the devices of its drivers. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vulkan/state.h"
#include "vulkan/vulkan.h"

static const char library[] = "libvulkan.so.1";

/* Cards come first, then devices that share the host's memory; a device that is the CPU comes last. */
enum { CARD, SHARED, VIRTUAL, OTHER, PROCESSOR };
static int rank_of(const ek_vulkan_loader *l, VkPhysicalDevice d)
{
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    l->GetPhysicalDeviceProperties2(d, &p);
    switch (p.properties.deviceType) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return CARD;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return SHARED;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return VIRTUAL;
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return PROCESSOR;
    default: return OTHER;
    }
}

static ek_err list_devices(ek_vulkan_loader *l)
{
    uint32_t n = sizeof l->device / sizeof *l->device;
    const VkResult r = l->EnumeratePhysicalDevices(l->instance, &n, l->device);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE && r != VK_ERROR_INITIALIZATION_FAILED)
        return ek_fail(EK_EUNSUPPORTED, "the Vulkan loader lists no devices: VkResult %d", (int)r);
    l->n = r == VK_ERROR_INITIALIZATION_FAILED ? 0 : (int)n;
    for (int i = 1; i < l->n; i++)
        for (int j = i; j > 0 && rank_of(l, l->device[j]) < rank_of(l, l->device[j - 1]); j--) {
            const VkPhysicalDevice d = l->device[j];
            l->device[j] = l->device[j - 1], l->device[j - 1] = d;
        }
    return EK_OK;
}

static ek_err open_loader(ek_vulkan_loader *l)
{
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!lib) return ek_fail(EK_ENOTFOUND, "no Vulkan loader: there is no %s", library);
    PFN_vkGetInstanceProcAddr get;
    void *symbol = dlsym(lib, "vkGetInstanceProcAddr");
    memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from an object's to a function's address */
    if (!get) return ek_fail(EK_EUNSUPPORTED, "the Vulkan loader (%s) lacks vkGetInstanceProcAddr", library);
    const PFN_vkEnumerateInstanceVersion version = (PFN_vkEnumerateInstanceVersion)get(NULL,
                                                                                       "vkEnumerateInstanceVersion");
    const PFN_vkCreateInstance create = (PFN_vkCreateInstance)get(NULL, "vkCreateInstance");
    if (!version || !create || version(&l->version) != VK_SUCCESS || l->version < VK_API_VERSION_1_3)
        return ek_fail(EK_EUNSUPPORTED, "the Vulkan loader (%s) is too old: the kernels need Vulkan 1.3", library);
    const VkApplicationInfo app = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "evenkeel", .apiVersion = VK_API_VERSION_1_3};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
    const VkResult r = create(&info, NULL, &l->instance);
    if (r != VK_SUCCESS)
        return ek_fail(EK_EUNSUPPORTED, "the Vulkan loader (%s) finds no driver: VkResult %d", library, (int)r);
#define VK(name)                                          \
    l->name = (PFN_vk##name)get(l->instance, "vk" #name); \
    if (!l->name) return ek_fail(EK_EUNSUPPORTED, "the Vulkan loader (%s) lacks vk%s", library, #name);
    EK_VULKAN_INSTANCE_FUNCTIONS(VK)
#undef VK
    l->matrix_forms = get(l->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    return list_devices(l);
}

/* Opened once, and never closed: drivers keep threads. */
ek_err ek_vulkan_open_loader(const ek_vulkan_loader **out)
{
    static ek_vulkan_loader loader;
    static bool opened;
    if (!opened) {
        loader = (ek_vulkan_loader){0};
        EK_TRY(open_loader(&loader));
        opened = true;
    }
    *out = &loader;
    return EK_OK;
}

void ek_vulkan_name(const ek_vulkan_loader *l, int ordinal, char *out, size_t room)
{
    VkPhysicalDeviceDriverProperties driver = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &driver};
    l->GetPhysicalDeviceProperties2(l->device[ordinal], &p);
    snprintf(out, room, "%s, %s %s", p.properties.deviceName, driver.driverName, driver.driverInfo);
}

bool ek_vulkan_may_have_card(char *(*env)(const char *name))
{
    static const char *const device[] = {"/dev/dri", "/dev/nvidiactl",
                                         "/dev/dxg"}; /* devices of Linux, NVIDIA's containers and WSL */
    static const char *const named[] = {"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_INSTANCE_LAYERS"};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        if (!access(device[i], F_OK)) return true;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (env(named[i])) return true;
    return false;
}

static bool is(int ordinal, int rank)
{
    const ek_vulkan_loader *l;
    return !ek_vulkan_open_loader(&l) && ordinal < l->n && rank_of(l, l->device[ordinal]) == rank;
}

bool ek_vulkan_is_card(int ordinal)
{
    return is(ordinal, CARD);
}

bool ek_vulkan_is_processor(int ordinal)
{
    return is(ordinal, PROCESSOR);
}
