/* One file: from a desk to an answer on it, in a process that is locked up. */
#ifndef EK_HELPER_WORK_H
#define EK_HELPER_WORK_H

#include <stddef.h>
#include <sys/types.h>

/* Waits for a desk at socket 0, locks this process up, decodes, and ends it. base: bytes of address space that it had
 * at its start. Status 0: there is an answer; others: it could not be locked up, or the desk is none. */
__attribute__((noreturn)) void ek_work(pid_t parent, size_t base);

#endif
