#include "base/machine/memory.h"

#include <math.h>
#include <stddef.h>
#include <sys/resource.h>

#include "base/machine/cgroup.h"

/* What one group leaves. A limit of v1 that nobody set is a number beyond all memory. */
static double group_left(const char *dir, bool v2)
{
    double limit = ek_cgroup_number(dir, v2 ? "memory.max" : "memory.limit_in_bytes", NULL, 0);
    double used = ek_cgroup_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes", NULL, 0);
    if (isnan(limit) || isnan(used) || limit > 0x1p60) return INFINITY;
    double cache = ek_cgroup_number(dir, "memory.stat", v2 ? "inactive_file" : "total_inactive_file", 0);
    if (cache > 0) used -= cache < used ? cache : used;
    return limit > used ? limit - used : 1;
}

double ek_memory_cgroups(const char *root)
{
    return ek_cgroup_least(root, "memory", group_left);
}

static double limit_left(int resource, const char *used)
{
    struct rlimit lim;
    if (getrlimit((__rlimit_resource_t)resource, &lim) || lim.rlim_cur == RLIM_INFINITY) return INFINITY;
    double now = ek_cgroup_number("/proc/self", "status", used, 0) * 1024;
    return (double)lim.rlim_cur > now ? (double)lim.rlim_cur - now : 1;
}

double ek_memory_available(void)
{
    double least = ek_cgroup_number("/proc", "meminfo", "MemAvailable", 0) * 1024;
    if (isnan(least)) least = INFINITY;
    double of[] = {ek_memory_cgroups(""), limit_left(RLIMIT_AS, "VmSize"), limit_left(RLIMIT_DATA, "VmData")};
    for (int i = 0; i < 3; i++)
        if (of[i] < least) least = of[i];
    return isinf(least) ? 0 : least;
}
