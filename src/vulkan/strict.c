#include "vulkan/strict.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* SPIR-V Specification, 3: numbers of instructions, decorations, capabilities and execution modes. */
enum {
    MAGIC = 0x07230203,
    HEADER = 5,
    MAX_BOUND = 4194303, /* the maximum number of identifiers in SPIR-V */
    OP_EXT_INST = 12,
    OP_ENTRY_POINT = 15,
    OP_EXECUTION_MODE = 16,
    OP_CAPABILITY = 17,
    OP_TYPE_FIRST = 19,
    OP_TYPE_LAST = 39,
    OP_F_NEGATE = 127,
    OP_DECORATE = 71,
    NO_CONTRACTION = 42,
    MODE_DENORM_PRESERVE = 4459,
    MODE_ZEROS_PRESERVE = 4461,
    MODE_RTE = 4462,
    CAPABILITY_DENORM = 4464,
    CAPABILITY_ZEROS = 4466,
    CAPABILITY_RTE = 4467,
    EXT_SQRT = 31,
    EXT_FMA = 50
};

/* FAdd, FSub, FMul, FDiv, FRem, FMod, VectorTimesScalar, Dot and their like. */
static bool is_float_operation(const uint32_t *w, unsigned op)
{
    switch (op) {
    case OP_F_NEGATE:
    case 129:
    case 131:
    case 133:
    case 136:
    case 140:
    case 141:
    case 142:
    case 143:
    case 144:
    case 145:
    case 146:
    case 147:
    case 148: return true;
    case OP_EXT_INST: return w[4] == EXT_SQRT || w[4] == EXT_FMA;
    default: return false;
    }
}

/* The positions found in one walk over the shader. */
typedef struct found {
    size_t capabilities_end, modes_end, types; /* further words are inserted before these words */
    uint32_t entry;
    int entries;
    size_t n_marked;
} found;

static bool look(found *f, const uint32_t *code, size_t n, bool *marked, uint32_t bound)
{
    *f = (found){0};
    for (size_t at = HEADER, words; at < n; at += words) {
        const unsigned op = code[at] & 0xffff;
        words = code[at] >> 16;
        if (words == 0 || words > n - at) return false;
        if (op == OP_CAPABILITY) f->capabilities_end = at + words;
        if (op == OP_ENTRY_POINT) f->entries++, f->entry = code[at + 2];
        if (op == OP_ENTRY_POINT || op == OP_EXECUTION_MODE) f->modes_end = at + words;
        if (op == OP_DECORATE && code[at + 2] == NO_CONTRACTION && code[at + 1] < bound) marked[code[at + 1]] = true;
        if (op >= OP_TYPE_FIRST && op <= OP_TYPE_LAST && !f->types) f->types = at;
        if (!is_float_operation(code + at, op)) continue;
        if (code[at + 2] >= bound) return false;
        if (!marked[code[at + 2]]) f->n_marked++;
    }
    return f->entries == 1 && f->capabilities_end && f->types;
}

static uint32_t *put(uint32_t *to, unsigned op, uint32_t a, uint32_t b, uint32_t c, unsigned words)
{
    const uint32_t all[] = {words << 16 | op, a, b, c};
    memcpy(to, all, words * sizeof *all);
    return to + words;
}

static uint32_t *put_modes(uint32_t *to, const found *f, const ek_vulkan_modes *modes)
{
    if (modes->rte) to = put(to, OP_EXECUTION_MODE, f->entry, MODE_RTE, 32, 4);
    if (modes->denormals) to = put(to, OP_EXECUTION_MODE, f->entry, MODE_DENORM_PRESERVE, 32, 4);
    return modes->zeros ? put(to, OP_EXECUTION_MODE, f->entry, MODE_ZEROS_PRESERVE, 32, 4) : to;
}

static uint32_t *put_marks(uint32_t *to, const uint32_t *code, size_t n, bool *marked)
{
    for (size_t at = HEADER; at < n; at += code[at] >> 16) {
        if (!is_float_operation(code + at, code[at] & 0xffff) || marked[code[at + 2]]) continue;
        to = put(to, OP_DECORATE, code[at + 2], NO_CONTRACTION, 0, 3);
        marked[code[at + 2]] = true;
    }
    return to;
}

uint32_t *ek_vulkan_strict(const uint32_t *code, size_t n, const ek_vulkan_modes *modes, size_t *n_out)
{
    found f;
    if (n < HEADER || code[0] != MAGIC || code[3] > MAX_BOUND) return NULL;
    bool *marked = ek_alloc(code[3] + 1);
    if (!look(&f, code, n, marked, code[3])) {
        free(marked);
        return NULL;
    }
    uint32_t *out = ek_alloc(sizeof *out * (n + 3 * f.n_marked + 3 * 2 + 3 * 4)), *to = out;
    const bool used[] = {modes->rte, modes->denormals, modes->zeros};
    static const uint32_t capability[] = {CAPABILITY_RTE, CAPABILITY_DENORM, CAPABILITY_ZEROS};
    memcpy(to, code, sizeof *to * f.capabilities_end), to += f.capabilities_end;
    for (int i = 0; i < 3; i++)
        if (used[i]) to = put(to, OP_CAPABILITY, capability[i], 0, 0, 2);
    memcpy(to, code + f.capabilities_end, sizeof *to * (f.modes_end - f.capabilities_end));
    to = put_modes(to + (f.modes_end - f.capabilities_end), &f, modes);
    memcpy(to, code + f.modes_end, sizeof *to * (f.types - f.modes_end));
    to = put_marks(to + (f.types - f.modes_end), code, n, marked);
    memcpy(to, code + f.types, sizeof *to * (n - f.types));
    *n_out = (size_t)(to - out) + (n - f.types);
    free(marked);
    return out;
}
