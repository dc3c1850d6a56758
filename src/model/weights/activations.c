#include "model/weights/activations.h"

#include <string.h>

static const char *const names[] = {"auto", "8", "16"};

const char *ek_activations_name(ek_activations a)
{
    return names[a];
}

ek_err ek_activations_parse(const char *text, ek_activations *out)
{
    for (int i = 0; i <= EK_ACTIVATIONS_16; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (ek_activations)i;
            return EK_OK;
        }
    return ek_fail(EK_EINVAL, "activations %.20s; there are auto, 8 and 16", text);
}
