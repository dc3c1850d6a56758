/* Whether a device's arithmetic is the definition's (docs/NUMERICS.md 1), found by running it. */
#ifndef EK_VULKAN_EVIDENCE_H
#define EK_VULKAN_EVIDENCE_H

#include "vulkan/state.h"

/* ek_evidence (shaders/evidence.comp): fma(a, b, c), a / b, sqrt(a), a * b and a + c of each of n triples. grid
 * (ceil(n / 256)), 256 threads. */
enum { EK_VULKAN_RESULTS = 5 };
typedef struct ek_vulkan_evidence_args {
    uint64_t x, y;
    int32_t n;
} ek_vulkan_evidence_args;

/* The device's own fma where it is one for every input that was tried, denormals among them; else that by integers
 * (v->soft). VK_ERROR_FEATURE_NOT_PRESENT: neither is right; v->text is the sentence. */
VkResult ek_vulkan_choose_arithmetic(ek_vulkan *v);

#endif
