/* The kernels of AVX-VNNI as AVX-512VL encodes their instructions, so that machines with AVX-512 alone compare them. */
#ifdef __x86_64__
#define EK_ISA               avxvnni
#define EK_ISA_avxvnni       1
#define ek_linear_q4_avxvnni check_linear_q4_vnni
#define ek_linear_q8_avxvnni check_linear_q8_vnni
#include "ops/linear/x86/linear_q_256_isa.c"
#else
typedef int check_no_linear_vnni;
#endif
