/* What a process does to itself before it becomes a program that is given a stranger's file. Inside src/media. */
#ifndef EK_MEDIA_LOCKED_LOCK_H
#define EK_MEDIA_LOCKED_LOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* All that is needed, made beforehand: between fork and exec nothing is allocated. */
typedef struct ek_lock {
    int program;  /* a descriptor: its folder may be closed to the user that the process becomes */
    pid_t parent; /* with whose thread it ends */
    int cpu_seconds;
    size_t memory; /* bytes of address space */
    int landlock;  /* the kernel's version of it; 0: it has none */
    bool fonts;    /* it reads the system's fonts and what it keeps about them */
    bool helper;   /* it locks up its children itself, by ek_lock_decoder: no time, no memory, no filter, no parent */
} ek_lock;

/* EUNSUPPORTED where what reads a stranger's file cannot be locked up: it is not read there. Linux locks up any
 * program, macOS a helper alone, whose decoders need neither files nor libraries any more. */
ek_err ek_lock_check(bool helper);

int ek_lock_landlock(void);

/* Limits, no new rights, Landlock where there is one, the filter of system calls. Async-signal-safe. NULL, or what
 * failed, with errno. */
const char *ek_lock_apply(const ek_lock *l);

/* What decodes one file, a child of a helper's: it has its memory and descriptors, and the system gives it nothing but
 * memory and the end. bytes of address space in all, milliseconds of processor time. NULL, or what failed, with errno.
 */
const char *ek_lock_decoder(pid_t parent, size_t memory, unsigned cpu_ms);

#endif
