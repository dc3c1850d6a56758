#include "base/late.h"

#include <dlfcn.h>

ek_err ek_late_open(const ek_late *l)
{
    void *library = dlopen(l->file, RTLD_NOW | RTLD_LOCAL);
    if (!library) return ek_fail(EK_EUNSUPPORTED, "%s is not installed here: %s", l->file, dlerror());
    for (int i = 0; i < l->n; i++) {
        *l->function[i].at = dlsym(library, l->function[i].name);
        if (!*l->function[i].at)
            return ek_fail(EK_EUNSUPPORTED, "%s has no function %s: it is another version than this was built with",
                           l->file, l->function[i].name);
    }
    return EK_OK;
}
