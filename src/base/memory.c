#include "base/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { PATH = 4096 };

/* The number of the line "NAME NUMBER…" of a file, or its only number if name is NULL; NAN without. "max" is no
 * number. */
static double number_in(const char *path, const char *name)
{
    FILE *f = fopen(path, "re");
    char line[512];
    double v = NAN;
    size_t n = name ? strlen(name) : 0;
    while (f && fgets(line, sizeof line, f))
        if ((n == 0 || (!strncmp(line, name, n) && (line[n] == ' ' || line[n] == ':'))) &&
            sscanf(line + n + (n > 0), "%lf", &v) == 1)
            break;
    if (f) fclose(f);
    return v;
}

static double file_number(const char *dir, const char *file, const char *name)
{
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return number_in(path, name);
}

/* What one group leaves. A limit of v1 that nobody set is a number beyond all memory. */
static double group_left(const char *dir, bool v2)
{
    double limit = file_number(dir, v2 ? "memory.max" : "memory.limit_in_bytes", NULL);
    double used = file_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes", NULL);
    if (isnan(limit) || isnan(used) || limit > 0x1p60) return INFINITY;
    double cache = file_number(dir, "memory.stat", v2 ? "inactive_file" : "total_inactive_file");
    if (cache > 0) used -= cache < used ? cache : used;
    return limit > used ? limit - used : 1;
}

/* The least that the group at mount/path and those above it leave. */
static double least_left(const char *mount, const char *path, bool v2)
{
    char dir[PATH];
    double least = INFINITY;
    size_t n_mount = strlen(mount), n_path = strlen(path);
    if (n_mount + n_path >= sizeof dir) return INFINITY;
    memcpy(dir, mount, n_mount);
    memcpy(dir + n_mount, path, n_path + 1);
    for (;;) {
        size_t n = strlen(dir);
        while (n > n_mount && dir[n - 1] == '/') dir[--n] = '\0';
        double left = group_left(dir, v2);
        if (left < least) least = left;
        if (n <= n_mount) return least;
        *strrchr(dir, '/') = '\0';
    }
}

double ek_memory_cgroups(const char *root)
{
    char line[PATH], mount[PATH];
    double least = INFINITY;
    snprintf(mount, sizeof mount, "%s/proc/self/cgroup", root);
    FILE *f = fopen(mount, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *kinds = strchr(line, ':'), *path = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!path) continue;
        *kinds++ = *path++ = '\0';
        bool v2 = !strcmp(line, "0") && *kinds == '\0', memory = false;
        for (char *word = strtok(kinds, ","); word; word = strtok(NULL, ",")) memory |= !strcmp(word, "memory");
        if (!v2 && !memory) continue;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, v2 ? "" : "/memory");
        double left = least_left(mount, path, v2);
        if (left < least) least = left;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/unified", root); /* v2 beside v1 */
        if (v2 && (left = least_left(mount, path, v2)) < least) least = left;
    }
    if (f) fclose(f);
    return least;
}

static double limit_left(int resource, const char *used)
{
    struct rlimit lim;
    if (getrlimit((__rlimit_resource_t)resource, &lim) || lim.rlim_cur == RLIM_INFINITY) return INFINITY;
    double now = number_in("/proc/self/status", used) * 1024;
    return (double)lim.rlim_cur > now ? (double)lim.rlim_cur - now : 1;
}

double ek_memory_available(void)
{
    double least = number_in("/proc/meminfo", "MemAvailable") * 1024;
    if (isnan(least)) least = INFINITY;
    double of[] = {ek_memory_cgroups(""), limit_left(RLIMIT_AS, "VmSize"), limit_left(RLIMIT_DATA, "VmData")};
    for (int i = 0; i < 3; i++)
        if (of[i] < least) least = of[i];
    return isinf(least) ? 0 : least;
}
