/* Libraries loaded at run time: a missing library disables only the features that need it. Code calls the functions by
 * their own names; a stub per function jumps to the library's address. A call before ek_late_open, or after it failed,
 * is the caller's mistake and ends the program. */
#ifndef EK_BASE_LATE_H
#define EK_BASE_LATE_H

#include "base/err.h"

typedef struct ek_late_function {
    const char *name;
    void **at;
} ek_late_function;

typedef struct ek_late {
    const char *file; /* the linker's name at build time: "libpng16.so.16" */
    const ek_late_function *function;
    int n;
} ek_late;

/* Finds the library and all its functions. EUNSUPPORTED: the file does not exist, or lacks a function. The functions
 * stay valid until the process ends. */
ek_err ek_late_open(const ek_late *l);

#if defined(__x86_64__)
#define EK_LATE_JUMP(f) "endbr64\n\tjmp *ek_late_at_" #f "(%rip)\n"
#elif defined(__aarch64__)
#define EK_LATE_JUMP(f) "hint #34\n\tadrp x16, ek_late_at_" #f "\n\tldr x16, [x16, :lo12:ek_late_at_" #f "]\n\tbr x16\n"
#endif
#if defined(__APPLE__) && defined(__aarch64__)
#define EK_LATE_JUMP_APPLE(f) \
    "adrp x16, _ek_late_at_" #f "@PAGE\n\tldr x16, [x16, _ek_late_at_" #f "@PAGEOFF]\n\tbr x16\n"
#elif defined(__APPLE__)
#define EK_LATE_JUMP_APPLE(f) "jmp *_ek_late_at_" #f "(%rip)\n"
#endif

/* At file scope, for every function of a library: EK_LATE_STUB(png_read_row). */
#ifdef __APPLE__ /* C names have an underscore there */
#define EK_LATE_STUB(f)   \
    void *ek_late_at_##f; \
    __asm__(".text\n\t.p2align 4\n\t.globl _" #f "\n\t.private_extern _" #f "\n_" #f ":\n\t" EK_LATE_JUMP_APPLE(f));
#else
#define EK_LATE_STUB(f)                                                                                           \
    void *ek_late_at_##f;                                                                                         \
    __asm__(".pushsection .text\n\t.p2align 4\n\t.globl " #f "\n\t.hidden " #f "\n\t.type " #f ", %function\n" #f \
            ":\n\t" EK_LATE_JUMP(f) "\t.size " #f ", . - " #f "\n\t.popsection\n");
#endif
/* An element of ek_late.function for the same function. */
#define EK_LATE_ENTRY(f) {#f, &ek_late_at_##f},

#endif
