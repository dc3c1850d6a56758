/* The kernel of AVX-VNNI for form PLANES as AVX-512VL encodes its instructions, so that machines with AVX-512 alone
 * compare it. */
#ifdef __x86_64__
#define ek_linear_planes_avxvnni check_linear_planes_vnni
#include <immintrin.h>
#undef __AVX512BW__ /* what the source looks at: registers of 256 bits */
#include "ops/linear/x86/planes/linear_p_avxvnni.c"
#else
typedef int check_no_planes_vnni;
#endif
