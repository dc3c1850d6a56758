/* A source NAME_isa.c is compiled once per instruction set that the Makefile lists for it (ISAS_NAME). Its object gets
 * EK_ISA (avx2, avx512, ...), EK_ISA_avx2 or the like, and that set's vectors under the names of vec_*.h. */
#ifndef EK_OPS_X86_ISA_H
#define EK_OPS_X86_ISA_H

#if defined(EK_ISA_avx2) || defined(EK_ISA_avxvnni)
#include "ops/x86/vec_avx2.h"
#else
#include "ops/x86/vec_avx512.h"
#endif

/* ek_row_table of avx2 becomes ek_row_table_avx2 */
#define EK_PASTE_ISA(name, isa)  name##_##isa
#define EK_PASTE_NAME(name, isa) EK_PASTE_ISA(name, isa)
#define EK_OF_ISA(name)          EK_PASTE_NAME(name, EK_ISA)

#endif
