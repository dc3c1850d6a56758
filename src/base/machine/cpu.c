#define _GNU_SOURCE
#include "base/machine/cpu.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

#include "base/linux.h"

#if defined(__x86_64__)
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <unistd.h>

static unsigned long long xcr0(void)
{
    unsigned lo, hi;
    __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (unsigned long long)hi << 32 | lo;
}

/* Linux saves 8 KiB more for a thread that uses tiles, so a program has to ask first (arch_prctl(2)). */
static bool tiles_granted(void)
{
#ifdef __linux__
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

/* AMD's families 0x19 and 0x1a. The second computes twice as many 512-bit products a cycle, and twice as many loads and
 * other vector operations beside them. */
static bool is_zen4_or_5(void)
{
    unsigned a, b, c, d, vendor[3];
    if (!__get_cpuid(0, &a, &vendor[0], &vendor[2], &vendor[1]) || !__get_cpuid(1, &a, &b, &c, &d)) return false;
    const unsigned family = (a >> 8 & 15) + (a >> 20 & 255);
    return memcmp(vendor, "AuthenticAMD", sizeof vendor) == 0 && (family == 0x19 || family == 0x1a);
}

unsigned ek_cpu_detect(void)
{
    unsigned a, b, c, d, cpu = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if (!(c >> 27 & 1)) return 0; /* OSXSAVE: the kernel reports the registers that it saves */
    unsigned fma = c >> 12 & 1, f16c = c >> 29 & 1;
    unsigned long long saved = xcr0();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if ((b >> 5 & 1) && fma && f16c && (saved & 6) == 6) cpu |= EK_CPU_AVX2;
    unsigned f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1, vnni = c >> 11 & 1;
    if (cpu && f && dq && bw && vl && vnni && (saved & 0xe6) == 0xe6) cpu |= EK_CPU_AVX512;
    const unsigned tile = d >> 24 & 1, tile_int8 = d >> 25 & 1;
    if (cpu & EK_CPU_AVX512 && tile && tile_int8 && (saved & 0x60000) == 0x60000 && tiles_granted()) cpu |= EK_CPU_AMX;
    if (cpu && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        if (a >> 4 & 1) cpu |= EK_CPU_AVXVNNI;
        if (cpu & EK_CPU_AVX512 && (a >> 5 & 1)) cpu |= EK_CPU_BF16;
    }
    if (cpu & EK_CPU_AVX512 && is_zen4_or_5()) cpu |= EK_CPU_ZEN4;
    return cpu;
}
#elif defined(__aarch64__) && defined(__APPLE__)
static bool has(const char *feature)
{
    int is = 0;
    size_t n = sizeof is;
    return sysctlbyname(feature, &is, &n, NULL, 0) == 0 && is;
}

unsigned ek_cpu_detect(void)
{
    if (!has("hw.optional.arm.FEAT_DotProd")) return 0;
    return EK_CPU_DOTPROD | (has("hw.optional.arm.FEAT_I8MM") ? EK_CPU_I8MM : 0);
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* Bits in which the kernel describes the processor (arch/arm64/include/uapi/asm/hwcap.h). */
enum { HAS_ASIMDDP = 1 << 20, HAS_I8MM = 1 << 13 };

unsigned ek_cpu_detect(void)
{
    if (!(getauxval(AT_HWCAP) & HAS_ASIMDDP)) return 0;
    return EK_CPU_DOTPROD | (getauxval(AT_HWCAP2) & HAS_I8MM ? EK_CPU_I8MM : 0);
}
#else
unsigned ek_cpu_detect(void)
{
    return 0;
}
#endif

/* In rising order. A name stands for all instructions up to `is` that the machine has. */
static const struct {
    const char *name;
    unsigned is, mask;
} isas[] = {
    {"scalar", 0, 0},
    {"avx2", EK_CPU_AVX2, EK_CPU_AVX2},
    {"avxvnni", EK_CPU_AVXVNNI, EK_CPU_AVX2 | EK_CPU_AVXVNNI},
    {"avx512", EK_CPU_AVX512, EK_CPU_AVX2 | EK_CPU_AVXVNNI | EK_CPU_AVX512 | EK_CPU_BF16 | EK_CPU_ZEN4},
    {"amx", EK_CPU_AMX, EK_CPU_AVX2 | EK_CPU_AVXVNNI | EK_CPU_AVX512 | EK_CPU_BF16 | EK_CPU_ZEN4 | EK_CPU_AMX},
    {"dotprod", EK_CPU_DOTPROD, EK_CPU_DOTPROD},
    {"i8mm", EK_CPU_I8MM, EK_CPU_DOTPROD | EK_CPU_I8MM},
};
enum { ISAS = sizeof isas / sizeof *isas };

const char *ek_cpu_isa(unsigned cpu)
{
    int i = ISAS - 1;
    while (i > 0 && !(cpu & isas[i].is)) i--;
    return isas[i].name;
}

const char *ek_cpu_model(void)
{
    static char name[128];
    if (name[0]) return name;
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            snprintf(name, sizeof name, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (f) fclose(f);
#ifdef __APPLE__
    size_t n = sizeof name;
    if (sysctlbyname("machdep.cpu.brand_string", name, &n, NULL, 0)) name[0] = '\0';
#endif
    if (!name[0]) snprintf(name, sizeof name, "unknown");
    return name;
}

/* The number of processors that a group's quota pays for. */
static double group_quota(const char *dir, bool v2)
{
    double quota = ek_cgroup_number(dir, v2 ? "cpu.max" : "cpu.cfs_quota_us", NULL, 0);
    double period = v2 ? ek_cgroup_number(dir, "cpu.max", NULL, 1)
                       : ek_cgroup_number(dir, "cpu.cfs_period_us", NULL, 0);
    return quota > 0 && period > 0 ? quota / period : INFINITY; /* -1, max: none */
}

double ek_cpu_quota(const char *root)
{
    return ek_cgroup_least(root, "cpu", group_quota);
}

int ek_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    double quota = ek_cpu_quota("");
    if (quota < n) n = (int)quota;
    return n > 0 ? n : 1;
}

const char *const *ek_cpu_isas(void)
{
    static const char *names[ISAS + 1];
    const unsigned cpu = ek_cpu_detect();
    int n = 0;
    for (int i = 0; i < ISAS; i++)
        if (!isas[i].is || cpu & isas[i].is) names[n++] = isas[i].name;
    names[n] = NULL;
    return names;
}

ek_err ek_cpu_mask(const char *isa, unsigned *cpu)
{
    const unsigned here = ek_cpu_detect();
    char usable[64] = "";
    for (int i = 0; i < ISAS; i++) {
        if (isas[i].is && !(here & isas[i].is)) continue;
        if (strcmp(isas[i].name, isa) == 0) {
            *cpu = isas[i].mask & here;
            return EK_OK;
        }
        size_t n = strlen(usable);
        snprintf(usable + n, sizeof usable - n, "%s%s", n ? ", " : "", isas[i].name);
    }
    return ek_fail(EK_EINVAL, "instruction set '%.80s' is not usable here; usable: %s", isa, usable);
}

ek_err ek_cpu_float_check(void)
{
    volatile float tiny = 1e-40f, one = 1.0f, ulp = 0x1p-24f, a = 1.0f + 0x1p-12f;
    if (tiny * one == 0.0f) return ek_fail(EK_EINTERNAL, "denormals are flushed to zero on this machine");
    if (one + ulp != 1.0f || one + ulp * 1.5f != 1.0f + 0x1p-23f)
        return ek_fail(EK_EINTERNAL, "rounding is not to nearest even");
    float contracted = a * a - (1.0f + 0x1p-11f); /* 0 when rounded between, 2^-24 when fused */
    if (contracted != 0.0f) return ek_fail(EK_EINTERNAL, "the build contracts a*b+c");
    if (fmaf(a, a, -(1.0f + 0x1p-11f)) != 0x1p-24f) return ek_fail(EK_EINTERNAL, "fmaf is not fused");
    return EK_OK;
}

/* The bytes that one group leaves. In v1, a limit that nobody set is a number beyond all memory. */
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
#ifdef __linux__
    const __rlimit_resource_t asked = (__rlimit_resource_t)resource;
#else
    const int asked = resource;
#endif
    if (getrlimit(asked, &lim) || lim.rlim_cur == RLIM_INFINITY) return INFINITY;
    double now = ek_cgroup_number("/proc/self", "status", used, 0) * 1024;
    return (double)lim.rlim_cur > now ? (double)lim.rlim_cur - now : 1;
}

/* The bytes that the system can give without taking memory from a program; NAN: unknown. */
static double system_left(void)
{
#ifdef __APPLE__
    vm_statistics64_data_t pages;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&pages, &n)) return NAN;
    const double given = (double)pages.free_count + pages.inactive_count + pages.purgeable_count;
    return given * (double)sysconf(_SC_PAGESIZE);
#else
    return ek_cgroup_number("/proc", "meminfo", "MemAvailable", 0) * 1024;
#endif
}

double ek_memory_available(void)
{
    double least = system_left();
    if (isnan(least)) least = INFINITY;
    double of[] = {ek_memory_cgroups(""), limit_left(RLIMIT_AS, "VmSize"), limit_left(RLIMIT_DATA, "VmData")};
    for (int i = 0; i < 3; i++)
        if (of[i] < least) least = of[i];
    return isinf(least) ? 0 : least;
}

enum { PATH = 4096 };

double ek_cgroup_number(const char *dir, const char *file, const char *name, int index)
{
    char path[PATH + 64], line[512];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    double v = NAN;
    size_t n = name ? strlen(name) : 0;
    while (f && fgets(line, sizeof line, f)) {
        if (n && (strncmp(line, name, n) || (line[n] != ' ' && line[n] != ':'))) continue;
        const char *at = line + n + (n > 0);
        for (int i = 0, word = 0; i < index; i++, word = 0) {
            sscanf(at, "%*s%n", &word);
            at += word;
        }
        if (sscanf(at, "%lf", &v) == 1 || !n) break;
    }
    if (f) fclose(f);
    return v;
}

/* The least value of the group at mount/path and of the groups above it. */
static double least_of(const char *mount, const char *path, bool v2, ek_cgroup_fn *fn)
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
        double one = fn(dir, v2);
        if (one < least) least = one;
        if (n <= n_mount) return least;
        *strrchr(dir, '/') = '\0';
    }
}

double ek_cgroup_least(const char *root, const char *controller, ek_cgroup_fn *fn)
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
        bool v2 = !strcmp(line, "0") && *kinds == '\0', mine = false;
        for (char *word = strtok(kinds, ","); word; word = strtok(NULL, ",")) mine |= !strcmp(word, controller);
        if (!v2 && !mine) continue;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, v2 ? "" : "/", v2 ? "" : controller);
        double one = least_of(mount, path, v2, fn);
        if (one < least) least = one;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/unified", root); /* v2 beside v1 */
        if (v2 && (one = least_of(mount, path, v2, fn)) < least) least = one;
    }
    if (f) fclose(f);
    return least;
}
