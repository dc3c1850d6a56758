/* How much memory this process may still take: of the machine, of its control groups, of its own limits. */
#ifndef EK_BASE_MEMORY_H
#define EK_BASE_MEMORY_H

/* Bytes that can be taken without swapping or being killed; 0 if unknown. The least of what the system reports as
 * available, what each control group above this process leaves (v1 and v2; page cache that can be dropped counts as
 * left), and what the limits on address space and data leave (ulimit -v, -d). */
double ek_memory_available(void);

/* The same for control groups alone, read below root instead of /: for tests. Infinite without a limit. */
double ek_memory_cgroups(const char *root);

#endif
