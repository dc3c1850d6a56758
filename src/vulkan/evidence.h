/* Runs a device's float operations and compares them with the definition (docs/NUMERICS.md 1). */
#ifndef EK_VULKAN_EVIDENCE_H
#define EK_VULKAN_EVIDENCE_H

#include "vulkan/state.h"

/* ek_evidence (shaders/evidence.comp) computes five results of each of n triples: fma(a, b, c), a / b, sqrt(a), a * b
 * and a + c. Grid (ceil(n / 256)), 256 threads. */
enum { EK_VULKAN_RESULTS = 5 };
typedef struct ek_vulkan_evidence_args {
    uint64_t x, y;
    int32_t n;
} ek_vulkan_evidence_args;

/* Sets v->soft: false if the device's own fma is right for every tested input, denormals included; true if only the fma
 * by integers is. VK_ERROR_FEATURE_NOT_PRESENT: neither is right, and the log names the operations. */
VkResult ek_vulkan_choose_arithmetic(ek_vulkan *v);

#endif
