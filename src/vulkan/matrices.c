#include "vulkan/matrices.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* --- instructions */

/* SPIR-V Specification, 3; SPV_NV_cooperative_matrix; SPV_KHR_cooperative_matrix. */
enum {
    MAGIC = 0x07230203,
    HEADER = 5,
    MAX_BOUND = 4194303,
    OP_EXTENSION = 10,
    OP_CAPABILITY = 17,
    OP_TYPE_INT = 21,
    OP_CONSTANT_TRUE = 41,
    OP_CONSTANT_FALSE = 42,
    OP_CONSTANT = 43,
    OP_SPEC_OP = 52,
    NV_CAPABILITY = 5357,
    NV_TYPE = 5358,
    NV_LOAD = 5359,
    NV_STORE = 5360,
    NV_MUL_ADD = 5361,
    NV_LENGTH = 5362,
    KHR_CAPABILITY = 6022,
    KHR_TYPE = 4456,
    KHR_LOAD = 4457,
    KHR_STORE = 4458,
    KHR_MUL_ADD = 4459,
    KHR_LENGTH = 4460,
    SIGNED = 15 /* the result and both factors have signed components */
};

/* The identifiers found in one walk over the shader. */
typedef struct found {
    bool matrices;
    uint32_t uint_type, yes, no;
    size_t n_more;          /* additional words for types and products */
    uint32_t *value, *bits; /* values of constants; bits of integer types */
} found;

static bool look(found *f, const uint32_t *code, size_t n, uint32_t bound)
{
    for (size_t at = HEADER, words; at < n; at += words) {
        const uint32_t *w = code + at;
        const unsigned op = w[0] & 0xffff;
        words = w[0] >> 16;
        if (words == 0 || words > n - at) return false;
        if (op == OP_CAPABILITY && w[1] == NV_CAPABILITY) f->matrices = true;
        if (op == NV_TYPE || op == NV_MUL_ADD) f->n_more++;
        if (op == OP_CONSTANT_TRUE) f->yes = w[2];
        if (op == OP_CONSTANT_FALSE) f->no = w[2];
        if (op == OP_TYPE_INT) {
            if (w[1] >= bound) return false;
            f->bits[w[1]] = w[2];
            if (w[2] == 32 && w[3] == 0) f->uint_type = w[1];
        }
        if (op == OP_CONSTANT) {
            if (w[2] >= bound) return false;
            f->value[w[2]] = w[3];
        }
    }
    return true;
}

/* The use of a type: the left factor, the right one, or the sum. */
static uint32_t use_of(const found *f, const uint32_t *w)
{
    return f->bits[w[2]] == 32 ? 2 : f->value[w[5]] > f->value[w[4]] ? 0 : 1;
}

/* Rewrites one instruction and returns the number of words written. `number` is the identifier of a constant 0; the
 * next two identifiers are 1 and 2. */
static size_t put(uint32_t *to, const found *f, const uint32_t *w, uint32_t number)
{
    static const char extension[] = "SPV_KHR_cooperative_matrix";
    const size_t words = w[0] >> 16;
    const uint32_t more = (uint32_t)(words + 1) << 16, same = (uint32_t)words << 16;
    memcpy(to, w, words * sizeof *to);
    switch (w[0] & 0xffff) {
    case OP_CAPABILITY:
        if (w[1] == NV_CAPABILITY) to[1] = KHR_CAPABILITY;
        return words;
    case OP_EXTENSION: /* the new name has the same number of words */
        if (words == 8 && !strcmp((const char *)(w + 1), "SPV_NV_cooperative_matrix"))
            memcpy(to + 1, extension, sizeof extension);
        return words;
    case NV_TYPE: to[0] = more | KHR_TYPE, to[words] = number + use_of(f, w); return words + 1;
    case NV_LOAD: /* the layout, row-major or column-major, stands before the stride */
        to[0] = same | KHR_LOAD, to[4] = number + (w[5] == f->yes), to[5] = w[4];
        return words;
    case NV_STORE: to[0] = same | KHR_STORE, to[3] = number + (w[4] == f->yes), to[4] = w[3]; return words;
    case NV_MUL_ADD: to[0] = more | KHR_MUL_ADD, to[words] = SIGNED; return words + 1;
    case NV_LENGTH: to[0] = same | KHR_LENGTH; return words;
    case OP_SPEC_OP:
        if (w[3] == NV_LENGTH) to[3] = KHR_LENGTH;
        return words;
    case OP_TYPE_INT: /* constants of the type can stand from here on */
        if (w[1] != f->uint_type) return words;
        for (uint32_t i = 0; i < 3; i++) {
            const uint32_t constant[] = {4u << 16 | OP_CONSTANT, f->uint_type, number + i, i};
            memcpy(to + words + 4 * i, constant, sizeof constant);
        }
        return words + 12;
    default: return words;
    }
}

bool ek_vulkan_has_matrix_code(const uint32_t *code, size_t n)
{
    for (size_t at = HEADER; at < n && code[at] >> 16; at += code[at] >> 16)
        if ((code[at] & 0xffff) == OP_CAPABILITY && at + 1 < n && code[at + 1] == NV_CAPABILITY) return true;
    return false;
}

uint32_t *ek_vulkan_matrices(const uint32_t *code, size_t n, size_t *n_out)
{
    if (n < HEADER || code[0] != MAGIC || code[3] > MAX_BOUND) return NULL;
    found f = {.value = ek_alloc(sizeof(uint32_t) * (code[3] + 1)), .bits = ek_alloc(sizeof(uint32_t) * (code[3] + 1))};
    uint32_t *out = NULL;
    if (look(&f, code, n, code[3]) && (!f.matrices || f.uint_type)) {
        out = ek_alloc(sizeof *out * (n + f.n_more + 12));
        size_t at = HEADER;
        memcpy(out, code, HEADER * sizeof *out);
        if (f.matrices) out[3] += 3;
        for (size_t from = HEADER; from < n; from += code[from] >> 16) {
            const size_t words = code[from] >> 16;
            if (f.matrices) at += put(out + at, &f, code + from, code[3]);
            else memcpy(out + at, code + from, words * sizeof *out), at += words;
        }
        *n_out = at;
    }
    free(f.value), free(f.bits);
    return out;
}

/* --- whether a device has them */

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
    forms_of ask;
    uint32_t n = 0;
    bool any = false;
    memcpy(&ask, &l->matrix_forms, sizeof ask);
    if (!ask || ask(d, &n, NULL) != VK_SUCCESS || !n) return false;
    form *const list = ek_alloc(sizeof *list * n);
    for (uint32_t i = 0; i < n; i++) list[i].type = (VkStructureType)FORM;
    if (ask(d, &n, list) == VK_SUCCESS)
        for (uint32_t i = 0; i < n; i++) any |= fits(&list[i]);
    free(list);
    return any;
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
