#include "cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda/api.h"
#include "cuda/state.h"

/* --- errors */

/* After these the driver refuses every call in this context. */
static bool is_sticky(CUresult r)
{
    /* 4, 46, 201: the driver shuts down, the device is lost, the context is invalid */
    return r == 4 || r == 46 || r == 201 || r == EK_CU_ECC || r == 220 || r == 226 ||
           (r >= 700 && r < 800 && r != 701 && r != 704 && r != 705 && r != 708) || r == 911 || r == EK_CU_UNKNOWN;
}

static const char *error_text(const ek_cuda_api *f, CUresult r, char *room, size_t size)
{
    const char *name = NULL, *text = NULL;
    if (f->cuGetErrorName(r, &name) != EK_CU_OK || !name) name = "unknown error";
    if (f->cuGetErrorString(r, &text) != EK_CU_OK || !text) text = "no description";
    snprintf(room, size, "%s (%s, %d)", text, name, r);
    return room;
}

ek_err ek_cuda_check(ek_cuda *c, CUresult r, const char *doing)
{
    if (c->broken) return ek_fail(EK_EINTERNAL, "%s", c->first);
    if (r == EK_CU_OK) return EK_OK;
    char why[256];
    error_text(&c->f, r, why, sizeof why);
    if (!is_sticky(r))
        return ek_fail(r == EK_CU_OUT_OF_MEMORY ? EK_ENOMEM : EK_EINTERNAL, "%s:%d: %s: %s", ek_cuda_maker(c),
                       c->ordinal, doing, why);
    c->broken = true;
    snprintf(c->first, sizeof c->first,
             "%s:%d failed while %s, after kernel %s: %s; the device cannot be used any more", ek_cuda_maker(c),
             c->ordinal, doing, c->last ? c->last : "none", why);
    return ek_fail(EK_EINTERNAL, "%s", c->first);
}

const char *ek_cuda_why(const ek_cuda *c)
{
    return c->broken ? c->first : NULL;
}

bool ek_cuda_broken(const ek_cuda *c)
{
    return c->broken;
}

const char *ek_cuda_maker(const ek_cuda *c)
{
    return c->f.maker ? c->f.maker : "cuda";
}

/* --- open and close */

ek_err ek_cuda_devices(const ek_cuda_api *api, int *n)
{
    char why[256];
    *n = 0;
    CUresult r = api->cuInit(0);
    if (r == EK_CU_OK) r = api->cuDeviceGetCount(n);
    if (r == EK_CU_OK || r == EK_CU_NO_DEVICE) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "the CUDA driver does not start: %s", error_text(api, r, why, sizeof why));
}

/* Chooses the machine code. features: the capability whose features the code may use; 0: the device's own. Features of
 * a newer device are an error, except on 9.0, for which there may be code with them (120on90). */
static ek_err pick_code(ek_cuda *c, const ek_cuda_module *modules, int capability, int multiprocessors, int features,
                        const char *name)
{
    char there[128];
    ek_cuda_code_text(there, sizeof there, modules);
    if (ek_cuda_code_pick(&c->code, modules, capability, features)) {
        c->chip = ek_cuda_chip_like(features ? features : capability, multiprocessors);
        return EK_OK;
    }
    if (features > capability && capability != 90)
        return ek_fail(EK_EUNSUPPORTED, "cuda:%d (%s) has compute capability %d.%d, less than that of sm_%d",
                       c->ordinal, name, capability / 10, capability % 10, features);
    if (features && ek_cuda_code_pick(&c->code, modules, capability, 0))
        return ek_fail(EK_EUNSUPPORTED,
                       "no kernels with the features of sm_%d for compute capability %d.%d were built into this "
                       "program (make CUDA_ARCHS=\"90a %don90\", docs/CUDA.md)",
                       features, capability / 10, capability % 10, features / 10 * 10);
    return ek_fail(
        EK_EUNSUPPORTED,
        "cuda:%d (%s) has compute capability %d.%d, the kernels in this program are for %s (%s, docs/CUDA.md)",
        c->ordinal, name, capability / 10, capability % 10, there,
        ek_cuda_code_exists(capability) ? "make CUDA_ARCHS=all builds all that there are" : "there are none for it");
}

static ek_err find_device(ek_cuda *c, const ek_cuda_module *modules, int built_with, int features)
{
    char why[256];
    const ek_cuda_api *f = &c->f;
    CUresult r = f->cuInit(0);
    if (r == EK_CU_NO_DEVICE) return ek_fail(EK_EUNSUPPORTED, "the CUDA driver finds no device");
    if (r != EK_CU_OK)
        return ek_fail(EK_EUNSUPPORTED, "the CUDA driver does not start: %s", error_text(f, r, why, sizeof why));
    int version = 0, count = 0, major = 0, minor = 0, multiprocessors = 0;
    EK_TRY(ek_cuda_check(c, f->cuDriverGetVersion(&version), "asking the driver for its version"));
    if (built_with == 0) return ek_fail(EK_EUNSUPPORTED, "this program was built without CUDA kernels (no nvcc)");
    if (version / 1000 < built_with / 1000)
        return ek_fail(EK_EUNSUPPORTED, "the CUDA driver is too old: it is %d.%d, the kernels need %d.0",
                       version / 1000, version % 1000 / 10, built_with / 1000);
    EK_TRY(ek_cuda_check(c, f->cuDeviceGetCount(&count), "counting devices"));
    if (count == 0 && !f->maker) return ek_fail(EK_EUNSUPPORTED, "the CUDA driver finds no device");
    if (c->ordinal < 0 || c->ordinal >= count)
        return ek_fail(EK_ENOTFOUND, "there is no device %s:%d, the driver has %d (from %s:0)", ek_cuda_maker(c),
                       c->ordinal, count, ek_cuda_maker(c));
    if (f->check) EK_TRY(f->check(c->ordinal));
    EK_TRY(ek_cuda_check(c, f->cuDeviceGet(&c->device, c->ordinal), "opening the device"));
    char name[160] = "?"; /* with the version of a Vulkan driver, because evidence is kept per version */
    f->cuDeviceGetName(name, sizeof name, c->device);
    const struct {
        int id, *to;
    } asked[] = {
        {EK_CU_ATTR_MAJOR, &major}, {EK_CU_ATTR_MINOR, &minor}, {EK_CU_ATTR_MULTIPROCESSORS, &multiprocessors}};
    for (int i = 0; i < 3; i++)
        EK_TRY(ek_cuda_check(c, f->cuDeviceGetAttribute(asked[i].to, asked[i].id, c->device),
                             "asking what the device is"));
    EK_TRY(pick_code(c, modules, major * 10 + minor, multiprocessors, features, name));
    if (c->chip.plain) {
        snprintf(c->text, sizeof c->text, "%s", name);
        return EK_OK;
    }
    snprintf(c->text, sizeof c->text, "%s, %d multiprocessors, driver %d.%d", name, multiprocessors, version / 1000,
             version % 1000 / 10);
    const size_t n = strlen(c->text);
    if (features) snprintf(c->text + n, sizeof c->text - n, ", as sm_%d", features);
    return EK_OK;
}

static ek_err load_modules(ek_cuda *c, const ek_cuda_module *m)
{
    size_t n = 0;
    while (m[n].name) n++;
    c->module = ek_alloc(sizeof *c->module * (n + 1));
    for (; m->name; m++) {
        if (m->code != c->code.code || m->features != c->code.features) continue;
        CUresult r = c->f.cuModuleLoadData(&c->module[c->n_modules], m->fatbin);
        if (r != EK_CU_OK) {
            char doing[64];
            snprintf(doing, sizeof doing, "loading the kernels of %s", m->name);
            return ek_cuda_check(c, r, doing);
        }
        c->n_modules++;
    }
    return EK_OK;
}

/* A device of another maker that does not start cannot run a model, so with auto the CPU does. */
static ek_err make_context(ek_cuda *c)
{
    char why[256];
    const CUresult r = c->f.cuDevicePrimaryCtxRetain(&c->context, c->device);
    if (!c->f.maker || r == EK_CU_OK || r == EK_CU_OUT_OF_MEMORY) return ek_cuda_check(c, r, "making a context");
    return ek_fail(EK_EUNSUPPORTED, "%s:%d (%s) does not start: %s", ek_cuda_maker(c), c->ordinal, c->text,
                   error_text(&c->f, r, why, sizeof why));
}

static ek_err start(ek_cuda *c, const ek_cuda_module *modules, int built_with, int features)
{
    EK_TRY(find_device(c, modules, built_with, features));
    EK_TRY(make_context(c));
    EK_TRY(ek_cuda_check(c, c->f.cuCtxSetCurrent(c->context), "entering the context"));
    EK_TRY(ek_cuda_check(c, c->f.cuStreamCreate(&c->stream, EK_CU_STREAM_NON_BLOCKING), "making a stream"));
    EK_TRY(load_modules(c, modules));
    size_t free, total;
    EK_TRY(ek_cuda_check(c, c->f.cuMemGetInfo(&free, &total), "asking for free memory"));
    size_t n = strlen(c->text);
    memcpy(c->card, c->text, n + 1);
    snprintf(c->text + n, sizeof c->text - n, ", %.1f of %.1f GB free", (double)free * 1e-9, (double)total * 1e-9);
    return EK_OK;
}

ek_err ek_cuda_open(ek_cuda **out, const ek_cuda_api *api, const ek_cuda_module *modules, int built_with, int ordinal,
                    int features)
{
    ek_cuda *c = ek_alloc(sizeof *c);
    *c = (ek_cuda){.f = *api, .ordinal = ordinal};
    ek_err err = start(c, modules, built_with, features);
    if (err != EK_OK) {
        ek_cuda_close(c);
        return err;
    }
    *out = c;
    return EK_OK;
}

ek_err ek_cuda_ask(const ek_cuda_api *api, const ek_cuda_module *modules, int built_with, int ordinal)
{
    ek_cuda *c = ek_alloc(sizeof *c);
    *c = (ek_cuda){.f = *api, .ordinal = ordinal};
    const ek_err err = find_device(c, modules, built_with, 0);
    free(c);
    return err;
}

ek_cuda *ek_cuda_on_paper(int capability, int multiprocessors)
{
    ek_cuda *c = ek_alloc(sizeof *c);
    c->chip = ek_cuda_chip_like(capability, multiprocessors);
    return c;
}

void ek_cuda_close(ek_cuda *c)
{
    if (!c) return;
    if (c->context) {
        for (int i = 0; i < c->n_modules; i++) c->f.cuModuleUnload(c->module[i]);
        if (c->beside) c->f.cuStreamDestroy(c->beside);
        if (c->stream) c->f.cuStreamDestroy(c->stream);
        c->f.cuCtxSetCurrent(NULL);
        c->f.cuDevicePrimaryCtxRelease(c->device);
    }
    free(c->module);
    free(c);
}

const char *ek_cuda_text(const ek_cuda *c)
{
    return c->text;
}

const char *ek_cuda_card(const ek_cuda *c)
{
    return c->card;
}

void ek_cuda_set_times(ek_cuda *c, const ek_cuda_times *us)
{
    c->times = *us;
    c->chip.us = &c->times;
}

int ek_cuda_ordinal(const ek_cuda *c)
{
    return c->ordinal;
}

int ek_cuda_multiprocessors(const ek_cuda *c)
{
    return c->chip.multiprocessors;
}

void ek_cuda_leave_matrices(ek_cuda *c)
{
    c->chip.matrices = false;
}

const ek_cuda_chip *ek_cuda_chip_of(const ek_cuda *c)
{
    return &c->chip;
}

const ek_cuda_api *ek_cuda_functions(const ek_cuda *c)
{
    return &c->f;
}

CUstream ek_cuda_stream(const ek_cuda *c)
{
    return c->stream;
}

ek_err ek_cuda_enter(ek_cuda *c)
{
    return EK_CUDA_CALL(c, "entering the context", cuCtxSetCurrent, c->context);
}

/* --- kernels */

ek_err ek_cuda_find(ek_cuda *c, ek_cuda_kernel *out, const char *name, size_t shared)
{
    *out = (ek_cuda_kernel){.name = name};
    CUresult r = EK_CU_OK;
    for (int i = 0; i < c->n_modules && !out->function && !c->broken; i++) {
        r = c->f.cuModuleGetFunction(&out->function, c->module[i], name);
        if (r != EK_CU_OK) out->function = NULL;
        if (is_sticky(r)) break;
    }
    if (c->broken || is_sticky(r)) return ek_cuda_check(c, r, "looking for a kernel");
    if (!out->function && c->f.maker && r != EK_CU_NOT_FOUND) { /* of another maker: its driver compiles them */
        char why[256];
        return ek_fail(EK_EUNSUPPORTED, "%s:%d (%s) has no kernel %s: %s", ek_cuda_maker(c), c->ordinal, c->card, name,
                       error_text(&c->f, r, why, sizeof why));
    }
    if (!out->function)
        return ek_fail(EK_EINTERNAL, "%s:%d: no kernel is named %s", ek_cuda_maker(c), c->ordinal, name);
    if (shared == 0) return EK_OK;
    return ek_cuda_check(c, c->f.cuFuncSetAttribute(out->function, EK_CU_FUNC_SHARED, (int)shared), name);
}

ek_err ek_cuda_allow_cluster(ek_cuda *c, const ek_cuda_kernel *kernel)
{
    return EK_CUDA_CALL(c, kernel->name, cuFuncSetAttribute, kernel->function, EK_CU_FUNC_LARGE_CLUSTER, 1);
}

ek_err ek_cuda_launch(ek_cuda *c, const ek_cuda_kernel *kernel, ek_cuda_grid g, const void *args)
{
    if (c->broken) return ek_cuda_check(c, EK_CU_OK, "");
    CUlaunchAttribute attribute[2];
    unsigned n = 0;
    EK_ASSERT(c->chip.clusters || !g.cluster);
    if (g.overlap && c->chip.overlap)
        attribute[n++] = (CUlaunchAttribute){.id = EK_CU_LAUNCH_OVERLAP,
                                             .value.programmaticStreamSerializationAllowed = 1};
    if (g.cluster)
        attribute[n++] = (CUlaunchAttribute){.id = EK_CU_LAUNCH_CLUSTER, .value.clusterDim = {g.cluster, 1, 1}};
    CUlaunchConfig config = {.gridDimX = g.x ? g.x : 1,
                             .gridDimY = g.y ? g.y : 1,
                             .gridDimZ = g.z ? g.z : 1,
                             .blockDimX = g.threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = (unsigned)g.shared,
                             .hStream = c->stream,
                             .attrs = attribute,
                             .numAttrs = n};
    void *list[] = {(void *)args};
    c->last = kernel->name;
    return ek_cuda_check(c, c->f.cuLaunchKernelEx(&config, kernel->function, list, NULL), kernel->name);
}

typedef CUresult get_fn(const char *symbol, void **function, int version, uint64_t flags, int *status);

ek_err ek_cuda_load(ek_cuda_api *api, const char *library)
{
    *api = (ek_cuda_api){0};
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *why = dlerror(); /* usually no fault: this machine has no such device */
        if (strstr(why, "No such file")) return ek_fail(EK_ENOTFOUND, "no NVIDIA driver: there is no %s", library);
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
