#include "vulkan/spirv.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* SPIR-V Specification, 3: numbers of instructions that both parts know. */
enum {
    MAGIC = 0x07230203,
    HEADER = 5,
    MAX_BOUND = 4194303, /* the maximum number of identifiers in SPIR-V */
    OP_CAPABILITY = 17
};

/* --- cooperative matrices */

/* SPV_NV_cooperative_matrix; SPV_KHR_cooperative_matrix. */
enum {
    OP_EXTENSION = 10,
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
typedef struct matrices {
    bool any;
    uint32_t uint_type, yes, no;
    size_t n_more;          /* additional words for types and products */
    uint32_t *value, *bits; /* values of constants; bits of integer types */
} matrices;

static bool find_matrices(matrices *f, const uint32_t *code, size_t n, uint32_t bound)
{
    for (size_t at = HEADER, words; at < n; at += words) {
        const uint32_t *w = code + at;
        const unsigned op = w[0] & 0xffff;
        words = w[0] >> 16;
        if (words == 0 || words > n - at) return false;
        if (op == OP_CAPABILITY && w[1] == NV_CAPABILITY) f->any = true;
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
static uint32_t use_of(const matrices *f, const uint32_t *w)
{
    return f->bits[w[2]] == 32 ? 2 : f->value[w[5]] > f->value[w[4]] ? 0 : 1;
}

/* Rewrites one instruction and returns the number of words written. `number` is the identifier of a constant 0; the
 * next two identifiers are 1 and 2. */
static size_t put_matrices(uint32_t *to, const matrices *f, const uint32_t *w, uint32_t number)
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
    matrices f = {.value = ek_alloc(sizeof(uint32_t) * (code[3] + 1)),
                  .bits = ek_alloc(sizeof(uint32_t) * (code[3] + 1))};
    uint32_t *out = NULL;
    if (find_matrices(&f, code, n, code[3]) && (!f.any || f.uint_type)) {
        out = ek_alloc(sizeof *out * (n + f.n_more + 12));
        size_t at = HEADER;
        memcpy(out, code, HEADER * sizeof *out);
        if (f.any) out[3] += 3;
        for (size_t from = HEADER; from < n; from += code[from] >> 16) {
            const size_t words = code[from] >> 16;
            if (f.any) at += put_matrices(out + at, &f, code + from, code[3]);
            else memcpy(out + at, code + from, words * sizeof *out), at += words;
        }
        *n_out = at;
    }
    free(f.value), free(f.bits);
    return out;
}

/* --- strict floats */

/* Numbers of instructions, decorations, capabilities and execution modes. */
enum {
    OP_EXT_INST = 12,
    OP_ENTRY_POINT = 15,
    OP_EXECUTION_MODE = 16,
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
