/* The processor, the memory and the limits that a control group sets.
 *
 * Instruction sets that the kernels may use change the speed only: results are bit-identical under every mask. */
#ifndef EK_BASE_CPU_H
#define EK_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define EK_CPU_AVX2    1u   /* AVX2, FMA and F16C */
#define EK_CPU_AVX512  2u   /* F, BW, VL, DQ and VNNI; never without EK_CPU_AVX2 */
#define EK_CPU_BF16    4u   /* AVX512_BF16; never without EK_CPU_AVX512, and no ISA name of its own */
#define EK_CPU_AMX     8u   /* AMX tiles and int8; never without EK_CPU_AVX512 */
#define EK_CPU_AVXVNNI 16u  /* AVX_VNNI, 8-bit products in vectors of 256 bits; never without EK_CPU_AVX2 */
#define EK_CPU_ZEN4    128u /* AVX-512 with vector units beside those that multiply (Zen 4, 5); no ISA name of its own */
#define EK_CPU_DOTPROD 32u  /* Arm: SDOT */
#define EK_CPU_I8MM    64u  /* Arm: SMMLA; never without EK_CPU_DOTPROD */

/* The EK_CPU_ mask that this machine and its operating system allow. Requests permission for AMX where Linux demands
 * it; the permission holds for the process and the threads it starts later. */
unsigned ek_cpu_detect(void);
/* The name for a mask: "scalar", "avx2", "avxvnni", "avx512" or "amx"; "dotprod" or "i8mm" on Arm. */
const char *ek_cpu_isa(unsigned cpu);
const char *ek_cpu_model(void); /* "AMD EPYC …"; "unknown" if it cannot be read */
/* Cores this process may use: its affinity, and whole cores of its control groups' quota. More threads than the quota
 * pays for would all be stopped for the rest of each period, a tenth of a second. */
int ek_cpu_count(void);
/* The quota alone, in cores, read below root instead of /: for tests. INFINITY without one. */
double ek_cpu_quota(const char *root);

/* Names usable on this machine, in rising order, NULL at the end; "scalar" is always first. */
const char *const *ek_cpu_isas(void);

/* The mask for a name of ek_cpu_isas(). EK_EINVAL names the usable ones. */
ek_err ek_cpu_mask(const char *isa, unsigned *cpu);

/* Checks the floating-point environment that the arithmetic needs: round to nearest,
 * denormals kept, no contraction, fmaf fused. EK_EINTERNAL says which one failed. */
ek_err ek_cpu_float_check(void);

/* How much memory this process may still take: of the machine, of its control groups, of its own limits. */

/* Bytes that can be taken without swapping or being killed; 0 if unknown. The least of what the system reports as
 * available, what each control group above this process leaves (v1 and v2; page cache that can be dropped counts as
 * left), and what the limits on address space and data leave (ulimit -v, -d). */
double ek_memory_available(void);

/* The same for control groups alone, read below root instead of /: for tests. Infinite without a limit. */
double ek_memory_cgroups(const char *root);

/* Control groups (versions 1 and 2): limits that a container has and the machine has not. */

/* What one group, a folder of the controller's, leaves or allows; INFINITY without a limit. */
typedef double ek_cgroup_fn(const char *dir, bool v2);

/* The least over this process's group of a controller ("memory", "cpu") and all groups above it, below root instead of
 * /: for tests. INFINITY without a limit. */
double ek_cgroup_least(const char *root, const char *controller, ek_cgroup_fn *fn);

/* Word `index` of the line "NAME WORD WORD…" of a file, or of its first line if name is NULL, as a number; NAN where
 * it is none ("max") or the file is missing. */
double ek_cgroup_number(const char *dir, const char *file, const char *name, int index);

/* The NUMA nodes of a machine: groups of CPUs that have memory of their own and reach the others' more slowly. */

enum { EK_MAX_NODES = 8, EK_MAX_CPUS = 1024 };

/* Nodes with CPUs on which this process may run, in the system's order. Beyond EK_MAX_NODES neighbours count as one. */
typedef struct ek_nodes {
    int n; /* 1: cpus are not looked at */
    uint64_t cpus[EK_MAX_NODES][EK_MAX_CPUS / 64];
} ek_nodes;

/* Reads root/sys/devices/system/node and this thread's affinity; root is "", or a folder for tests. One node where
 * there is no such folder. */
void ek_nodes_read(ek_nodes *out, const char *root);
int ek_nodes_cpus(const ek_nodes *s, int node); /* how many */
/* Keeps the calling thread on a node's CPUs. False where the system refuses; then it runs where it did. */
bool ek_nodes_bind(const ek_nodes *s, int node);

#endif
