/* What a process does to itself before it becomes a program that is given a stranger's file. Inside src/media/video. */
#ifndef EK_MEDIA_VIDEO_LOCK_H
#define EK_MEDIA_VIDEO_LOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* All that is needed, made beforehand: between fork and exec nothing is allocated. */
typedef struct ek_lock {
    const char *program;
    pid_t parent; /* with whose thread it ends */
    int cpu_seconds;
    size_t memory; /* bytes of address space */
    int landlock;  /* the kernel's version of it; 0: it has none */
} ek_lock;

int ek_lock_landlock(void);

/* Limits, no new rights, Landlock where there is one, the filter of system calls. Async-signal-safe. NULL, or what
 * failed, with errno. */
const char *ek_lock_apply(const ek_lock *l);

#endif
