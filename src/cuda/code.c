#include "cuda/code.h"

#include <stdio.h>

enum { MAX_CODES = 16 };

/* Whether machine code for `code` runs on a device of that capability. */
static bool runs(int code, int capability)
{
    return code == 0 || (code / 10 == capability / 10 && code <= capability);
}

bool ek_cuda_code_pick(ek_cuda_code *out, const ek_cuda_module *modules, int capability, int features)
{
    bool found = false;
    for (const ek_cuda_module *m = modules; m->name; m++) {
        const bool keeps = features ? runs(m->features, features) : m->features == m->code;
        if (!runs(m->code, capability) || !keeps) continue;
        const bool better = !found || m->code > out->code || (m->code == out->code && m->features > out->features);
        if (better) *out = (ek_cuda_code){m->code, m->features};
        found = true;
    }
    return found;
}

bool ek_cuda_code_exists(int capability)
{
    const int major = capability / 10;
    return major == 8 || capability == 90 || major == 10 || major == 12;
}

void ek_cuda_code_text(char *out, size_t size, const ek_cuda_module *modules)
{
    int code[MAX_CODES], n = 0;
    for (const ek_cuda_module *m = modules; m->name; m++) {
        int at = 0;
        while (at < n && code[at] < m->code) at++;
        if (m->features != m->code || (at < n && code[at] == m->code) || n == MAX_CODES) continue;
        for (int i = n++; i > at; i--) code[i] = code[i - 1];
        code[at] = m->code;
    }
    size_t used = 0;
    snprintf(out, size, "none");
    for (int i = 0; i < n && used < size; i++) {
        const int major = code[i] / 10, minor = code[i] % 10;
        if (i && code[i - 1] / 10 == major) continue; /* of one major number only the lowest is named */
        bool last = true;
        for (int k = i + 1; k < n; k++) last &= code[k] / 10 == major;
        char later[32] = "";
        if (major != 9)
            snprintf(later, sizeof later, " to %d.9", major); /* code for 9.0a runs on no other capability */
        used += (size_t)snprintf(out + used, size - used, "%s%d.%d%s",
                                 !used  ? ""
                                 : last ? " and "
                                        : ", ",
                                 major, minor, later);
    }
}
