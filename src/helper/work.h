/* The work on one file: from a desk to an answer on it, in a sandboxed process. */
#ifndef EK_HELPER_WORK_H
#define EK_HELPER_WORK_H

#include <stddef.h>
#include <sys/types.h>

/* Waits for a desk at socket 0, sandboxes this process, decodes, and ends the process. base: bytes of its address space
 * at its start. Status 0: there is an answer; others: the sandbox failed, or the desk is invalid. */
__attribute__((noreturn)) void ek_work(pid_t parent, size_t base);

#endif
