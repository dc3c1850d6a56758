/* The processor, the memory, and the limits of control groups.
 *
 * The allowed instruction sets change the speed only: results are bit-identical under every mask. */
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
#define EK_CPU_ZEN4    128u /* AVX-512 with separate units for products and for other work (Zen 4, 5); no ISA name */
#define EK_CPU_DOTPROD 32u  /* Arm: SDOT */
#define EK_CPU_I8MM    64u  /* Arm: SMMLA; never without EK_CPU_DOTPROD */

/* The EK_CPU_ mask that this machine and its operating system allow. Requests permission for AMX where Linux demands
 * it; the permission holds for the process and the threads it starts later. */
unsigned ek_cpu_detect(void);
/* The name for a mask: "scalar", "avx2", "avxvnni", "avx512" or "amx"; "dotprod" or "i8mm" on Arm. */
const char *ek_cpu_isa(unsigned cpu);
const char *ek_cpu_model(void); /* "AMD EPYC …"; "unknown" if it cannot be read */
/* Cores that this process may use: its affinity, limited to whole cores of its control groups' quota. With more threads
 * than the quota allows, all threads would stop for the rest of each period, a tenth of a second. */
int ek_cpu_count(void);
/* The quota alone, in cores; INFINITY: none. root: a folder instead of /, for tests. */
double ek_cpu_quota(const char *root);

/* Usable names on this machine, in rising order, ends with NULL; "scalar" is always first. */
const char *const *ek_cpu_isas(void);

/* The mask for a name of ek_cpu_isas(). EK_EINVAL names the usable ones. */
ek_err ek_cpu_mask(const char *isa, unsigned *cpu);

/* Checks the floating-point environment that the arithmetic needs: round to nearest,
 * denormals kept, no contraction, fmaf fused. EK_EINTERNAL says which one failed. */
ek_err ek_cpu_float_check(void);

/* --- memory that this process may still take, by the limits of machine, control groups and process --- */

/* Bytes that can be taken without swapping or being killed; 0 if unknown. The minimum of the memory that the system
 * reports as available, the remainder of each control group above this process (v1 and v2; droppable page cache counts
 * as free), and the remainders of the limits on address space and data (ulimit -v, -d). */
double ek_memory_available(void);

/* The same for control groups alone; infinite without a limit. root: a folder instead of /, for tests. */
double ek_memory_cgroups(const char *root);

/* --- control groups (versions 1 and 2): limits of a container --- */

/* The remainder or limit of one group, a folder of the controller; INFINITY: none. */
typedef double ek_cgroup_fn(const char *dir, bool v2);

/* The minimum over this process's group of a controller ("memory", "cpu") and all groups above it; INFINITY: no limit.
 * root: a folder instead of /, for tests. */
double ek_cgroup_least(const char *root, const char *controller, ek_cgroup_fn *fn);

/* Word `index` of the line "NAME WORD WORD…" of a file, or of its first line if name is NULL, as a number. NAN if the
 * word is no number ("max") or the file is missing. */
double ek_cgroup_number(const char *dir, const char *file, const char *name, int index);

/* --- NUMA nodes: groups of CPUs with memory of their own, which reach the other nodes' memory more slowly --- */

enum { EK_MAX_NODES = 8, EK_MAX_CPUS = 1024 };

/* Nodes with CPUs on which this process may run, in the system's order. Beyond EK_MAX_NODES, neighbours count as one.
 */
typedef struct ek_nodes {
    int n; /* 1: cpus is not used */
    uint64_t cpus[EK_MAX_NODES][EK_MAX_CPUS / 64];
} ek_nodes;

/* Reads root/sys/devices/system/node and this thread's affinity; root is "", or a folder for tests. One node if the
 * folder does not exist. */
void ek_nodes_read(ek_nodes *out, const char *root);
int ek_nodes_cpus(const ek_nodes *s, int node); /* number of CPUs */
/* Binds the calling thread to a node's CPUs. False if the system refuses; the thread's binding is unchanged then. */
bool ek_nodes_bind(const ek_nodes *s, int node);

#endif
