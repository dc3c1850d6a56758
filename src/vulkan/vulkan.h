/* A Vulkan device behind the CUDA driver's table of functions (cuda/api.h): memory by device addresses, copies, events,
 * recorded steps, and launches of kernels by name with the argument structures of cuda/args.h. The CUDA executor
 * (gpu/gpu.h) therefore runs a model here too, with shaders (vulkan/shaders) as kernels (docs/VULKAN.md).
 *
 * The loader libvulkan.so.1 is opened at run time; the program links nothing of Vulkan. One thread at a time uses a
 * device. */
#ifndef EK_VULKAN_VULKAN_H
#define EK_VULKAN_VULKAN_H

#include <stdbool.h>

#include "cuda/api.h"
#include "cuda/chip.h"

/* Fills the table. ENOTFOUND: there is no loader; EUNSUPPORTED: the loader or its drivers are too old, or the program
 * was built without shaders. */
ek_err ek_vulkan_load(ek_cuda_api *api);

/* Arguments of ek_cuda_open beside the table: one module with all shaders, and the version that the table reports. */
extern const ek_cuda_module ek_vulkan_modules[];
enum { EK_VULKAN_VERSION = 13000 };

/* Whether this machine may have a card: false if the system shows no graphics device. Loads nothing, because drivers
 * that would find only the CPU cost a process 60 MB. Also true if the environment names drivers or layers for the
 * loader. env: getenv, or a function in its place. */
bool ek_vulkan_may_have_card(char *(*env)(const char *name));
/* Whether device number `ordinal` is a card with memory of its own. The table is loaded. */
bool ek_vulkan_is_card(int ordinal);
bool ek_vulkan_is_processor(int ordinal); /* whether it is the CPU */

/* A hash of all shaders in this program; 0: it has none. */
uint32_t ek_vulkan_hash(void);

#endif
