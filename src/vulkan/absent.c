/* For programs that were built without shaders, because glslc or Vulkan's headers were missing. */
#include "vulkan/vulkan.h"

const ek_cuda_module ek_vulkan_modules[] = {{0}};

ek_err ek_vulkan_load(ek_cuda_api *api)
{
    (void)api;
    return ek_fail(EK_EUNSUPPORTED, "this program was built without Vulkan shaders (no glslc, or no Vulkan headers)");
}

bool ek_vulkan_may_have_card(char *(*env)(const char *name))
{
    (void)env;
    return false;
}

bool ek_vulkan_is_card(int ordinal)
{
    (void)ordinal;
    return false;
}

bool ek_vulkan_is_processor(int ordinal)
{
    (void)ordinal;
    return false;
}

uint32_t ek_vulkan_hash(void)
{
    return 0;
}
