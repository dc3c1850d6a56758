/* The kernels of linear layers on AMX with tiles in memory, see tiles_in_memory.h. */
#ifdef __x86_64__
#include "tiles_in_memory.h"

#define ek_linear_q4_amx     check_linear_q4_amx
#define ek_linear_q8_amx     check_linear_q8_amx
#define ek_linear_planes_amx check_linear_planes_amx
#include "ops/linear/x86/linear_amx.c"
#else
typedef int check_no_linear_amx;
#endif
