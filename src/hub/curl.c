#include "hub/curl.h"

#include <dlfcn.h>

static ek_err find(ek_curl *c, void *lib, const char *name)
{
#define F(f)                                                \
    if (!(c->f = (__typeof__(c->f))dlsym(lib, "curl_" #f))) \
        return ek_fail(EK_ENOTFOUND, "%s has no curl_%s; version 7.66 or later is needed", name, #f);
    EK_CURL_FUNCTIONS(F)
#undef F
    if (c->global_init(CURL_GLOBAL_DEFAULT)) return ek_fail(EK_ENOMEM, "%s does not start", name);
    if (!(c->version_info(CURLVERSION_NOW)->features & CURL_VERSION_SSL))
        return ek_fail(EK_EINVAL, "%s cannot do https", name);
    return EK_OK;
}

static ek_curl loaded;
static int ready;

ek_err ek_curl_load(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib"};
    for (size_t i = 0; !ready && i < sizeof names / sizeof *names; i++) {
        void *lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (!lib) continue;
        EK_TRY(find(&loaded, lib, names[i]));
        ready = 1;
    }
    if (!ready) return ek_fail(EK_ENOTFOUND, "libcurl.so.4 is not installed (Debian and Ubuntu: the package libcurl4)");
    return EK_OK;
}

const ek_curl *ek_curl_lib(void)
{
    EK_ASSERT(ready);
    return &loaded;
}
