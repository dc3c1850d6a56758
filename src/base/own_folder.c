#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#ifdef __linux__
#include <link.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#ifdef __linux__
/* The path of the shared library with this function; NULL: the function is in the program itself. */
static const char *library(void)
{
    Dl_info info;
    struct link_map *map = NULL;
    const void *here = (const void *)(uintptr_t)ek_own_folder;
    if (!dladdr1(here, &info, (void **)&map, RTLD_DL_LINKMAP) || !map || !map->l_name || !*map->l_name) return NULL;
    return map->l_name;
}
#else
/* The path of the library, or of the program. */
static const char *library(void)
{
    Dl_info info;
    return dladdr((const void *)(uintptr_t)ek_own_folder, &info) ? info.dli_fname : NULL;
}
#endif

ek_err ek_own_folder(char *out, size_t room)
{
    char self[PATH_MAX];
    const char *name = library();
    const ssize_t n = name ? 0 : readlink("/proc/self/exe", self, sizeof self - 1);
    if (name && !realpath(name, self)) return ek_fail(EK_EIO, "the path of the library, %s, is not there", name);
    if (n < 0) return ek_fail(EK_EIO, "/proc/self/exe is unreadable");
    if (!name) self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash) return ek_fail(EK_EIO, "%s is no path", self);
    *slash = '\0';
    if ((size_t)snprintf(out, room, "%s", self) >= room)
        return ek_fail(EK_EIO, "the path of the program has %zu bytes", strlen(self));
    return EK_OK;
}
