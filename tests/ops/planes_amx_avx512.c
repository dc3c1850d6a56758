/* The kernel of AMX for form PLANES with tiles in memory, see tiles_in_memory.h. */
#ifdef __x86_64__
#include "tiles_in_memory.h"

#define ek_linear_planes_amx check_linear_planes_amx
#include "ops/linear/x86/planes/linear_p_amx.c"
#else
typedef int check_no_planes_amx;
#endif
