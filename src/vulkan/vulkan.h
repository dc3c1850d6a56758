/* A Vulkan device behind the table of functions that the CUDA driver has (cuda/api.h): memory by device addresses,
 * copies, events, recorded steps, and launches of kernels by name with the argument structures of cuda/args.h. So what
 * runs a model on a CUDA device (gpu/gpu.h) runs it here, with shaders (vulkan/shaders) for kernels
 * (docs/VULKAN.md).
 *
 * The loader libvulkan.so.1 is opened at run time; nothing of Vulkan is linked. A device is used by one thread at a
 * time. */
#ifndef EK_VULKAN_VULKAN_H
#define EK_VULKAN_VULKAN_H

#include "cuda/api.h"
#include "cuda/code.h"

/* Fills the table. ENOTFOUND: there is no loader; EUNSUPPORTED: the loader or its drivers are too old, or the program
 * was built without shaders. */
ek_err ek_vulkan_load(ek_cuda_api *api);

/* For ek_cuda_open beside the table: one module, of all shaders, and the version that the table says of itself. */
extern const ek_cuda_module ek_vulkan_modules[];
enum { EK_VULKAN_VERSION = 13000 };

/* Of all shaders of this program; 0: it has none. */
uint32_t ek_vulkan_hash(void);

#endif
