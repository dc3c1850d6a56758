/* Control groups (versions 1 and 2): limits that a container has and the machine has not. */
#ifndef EK_BASE_CGROUP_H
#define EK_BASE_CGROUP_H

#include <stdbool.h>

/* What one group, a folder of the controller's, leaves or allows; INFINITY without a limit. */
typedef double ek_cgroup_fn(const char *dir, bool v2);

/* The least over this process's group of a controller ("memory", "cpu") and all groups above it, below root instead of
 * /: for tests. INFINITY without a limit. */
double ek_cgroup_least(const char *root, const char *controller, ek_cgroup_fn *fn);

/* Word `index` of the line "NAME WORD WORD…" of a file, or of its first line if name is NULL, as a number; NAN where
 * it is none ("max") or the file is missing. */
double ek_cgroup_number(const char *dir, const char *file, const char *name, int index);

#endif
