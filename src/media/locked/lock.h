/* Sandboxes the calling process before it executes a program on an untrusted file. Inside src/media. */
#ifndef EK_MEDIA_LOCKED_LOCK_H
#define EK_MEDIA_LOCKED_LOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* The parameters, made beforehand, because nothing may be allocated between fork and exec. */
typedef struct ek_lock {
    int program;  /* a descriptor, because the process may lose access to the program's folder */
    pid_t parent; /* the process ends with its parent's thread */
    int cpu_seconds;
    size_t memory; /* bytes of address space */
    int landlock;  /* the kernel's Landlock version; 0: none */
    bool fonts;    /* allows reading the system's fonts and their cache */
    bool helper;   /* it sandboxes its children itself (ek_lock_decoder): no time, memory, filter and parent here */
} ek_lock;

/* EUNSUPPORTED if a program that reads an untrusted file cannot be locked up: the file is then not read. Linux can lock
 * up any program, macOS only a helper, whose decoders need neither files nor libraries any more. */
ek_err ek_lock_check(bool helper);

int ek_lock_landlock(void);

/* Sets limits, forbids new rights, applies Landlock if there is one, and the filter of system calls. Async-signal-safe.
 * Returns NULL, or the name of the failed part, with errno. */
const char *ek_lock_apply(const ek_lock *l);

/* Sandboxes a helper's child that decodes one file: system calls give it only memory and its end. memory: bytes of
 * address space in all. Returns NULL, or the name of the failed part, with errno. */
const char *ek_lock_decoder(pid_t parent, size_t memory, unsigned cpu_ms);

#endif
