#include "cuda/api.h"

#include <dlfcn.h>
#include <string.h>

typedef CUresult get_fn(const char *symbol, void **function, int version, uint64_t flags, int *status);

ek_err ek_cuda_load(ek_cuda_api *api, const char *library)
{
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *why = dlerror(); /* the most common one is no fault: this machine has no such device */
        if (strstr(why, "No such file")) return ek_fail(EK_EUNSUPPORTED, "no NVIDIA driver: there is no %s", library);
        return ek_fail(EK_EUNSUPPORTED, "the NVIDIA driver cannot be opened: %s", why);
    }
    get_fn *get;
    void *symbol = dlsym(lib, "cuGetProcAddress_v2");
    memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from an object's to a function's address */
    if (!get) return ek_fail(EK_EUNSUPPORTED, "the CUDA driver (%s) is too old: it lacks cuGetProcAddress_v2", library);
    const struct {
        const char *name;
        size_t at;
    } entry[] = {
#define CU(name, args) {#name, offsetof(ek_cuda_api, name)},
        EK_CUDA_FUNCTIONS(CU)
#undef CU
    };
    for (size_t i = 0; i < sizeof entry / sizeof *entry; i++) {
        void *p = NULL;
        int status = 0;
        if (get(entry[i].name, &p, EK_CU_ABI, 0, &status) != EK_CU_OK || !p)
            return ek_fail(EK_EUNSUPPORTED, "the CUDA driver (%s) is too old: it lacks %s", library, entry[i].name);
        memcpy((char *)api + entry[i].at, &p, sizeof p);
    }
    return EK_OK;
}
